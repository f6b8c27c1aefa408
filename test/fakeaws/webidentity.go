package fakeaws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// webIdentity contains the claims of a verified token.
type webIdentity struct {
	accountID, issuer, subject, audience string
}

// verifyWebIdentity checks the token of AssumeRoleWithWebIdentity. It runs without the
// lock, because the keys are fetched.
func (s *Server) verifyWebIdentity(r *request) *apiError {
	role, ok := parseARN(r.params["RoleArn"])
	if !ok {
		return errorf(http.StatusBadRequest, "ValidationError", "%s is invalid", r.params["RoleArn"])
	}
	invalid := func(format string, args ...any) *apiError {
		return errorf(http.StatusBadRequest, "InvalidIdentityToken", format, args...)
	}
	token := r.params["WebIdentityToken"]
	claims := jwt.RegisteredClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil {
		return invalid("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	}
	issuer, _ := strings.CutPrefix(claims.Issuer, "https://")
	provider := s.provider(role.AccountID, issuer)
	if provider == nil {
		return invalid("No OpenIDConnect provider found in your account for %s", claims.Issuer)
	}
	keys, err := provider.keys(r)
	if err != nil {
		return errorf(http.StatusBadRequest, "IDPCommunicationError", "Couldn't retrieve verification key from your identity provider: %v", err)
	}
	claims = jwt.RegisteredClaims{}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"}),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(clockSkew),
		jwt.WithTimeFunc(func() time.Time { return r.now }))
	_, err = parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		key, ok := keys[id]
		if !ok {
			return nil, fmt.Errorf("no key %q", id)
		}
		return key, nil
	})
	// The leeway is for clocks that are behind. It does not extend the expiration.
	if claims.ExpiresAt != nil && !r.now.Before(claims.ExpiresAt.Time) || errors.Is(err, jwt.ErrTokenExpired) {
		return errorf(http.StatusBadRequest, "ExpiredTokenException", "Token expired: current date/time must be before the expiration date/time of the token")
	}
	if err != nil {
		return invalid("Couldn't verify the token: %v", err)
	}
	i := slices.IndexFunc(claims.Audience, func(a string) bool { return slices.Contains(provider.Audiences, a) })
	if i < 0 {
		return invalid("Incorrect token audience")
	}
	if claims.Subject == "" {
		return invalid("Missing a required claim: sub")
	}
	r.prepared = &webIdentity{accountID: role.AccountID, issuer: issuer, subject: claims.Subject, audience: claims.Audience[i]}
	return nil
}

// keys returns the public keys of the provider by their ids.
func (p *providerRecord) keys(r *request) (map[string]crypto.PublicKey, error) {
	data := []byte(p.JWKS)
	if p.fetch != nil {
		var err error
		if data, err = p.fetch(r.http.Context()); err != nil {
			return nil, err
		}
	}
	return parseJWKS(data)
}

func parseJWKS(data []byte) (map[string]crypto.PublicKey, error) {
	var set struct {
		Keys []jsonWebKey `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	keys := map[string]crypto.PublicKey{}
	for _, k := range set.Keys {
		key, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", k.ID, err)
		}
		keys[k.ID] = key
	}
	return keys, nil
}

// jsonWebKey is a public key as defined in RFC 7517.
type jsonWebKey struct {
	Type  string `json:"kty"`
	ID    string `json:"kid"`
	Curve string `json:"crv"`
	N     string `json:"n"`
	E     string `json:"e"`
	X     string `json:"x"`
	Y     string `json:"y"`
}

func (k jsonWebKey) public() (crypto.PublicKey, error) {
	decode := base64.RawURLEncoding.DecodeString
	switch k.Type {
	case "RSA":
		n, err := decode(k.N)
		e, err2 := decode(k.E)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		exponent := new(big.Int).SetBytes(e)
		if len(n) == 0 || !exponent.IsInt64() || exponent.Int64() < 3 || exponent.Int64() > 1<<31-1 {
			return nil, errors.New("invalid RSA key")
		}
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}, nil
	case "EC":
		curve, ok := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Curve]
		if !ok {
			return nil, fmt.Errorf("unknown curve %q", k.Curve)
		}
		x, err := decode(k.X)
		y, err2 := decode(k.Y)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		size := (curve.Params().BitSize + 7) / 8
		if len(x) != size || len(y) != size {
			return nil, errors.New("invalid point on the curve")
		}
		return ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	}
	return nil, fmt.Errorf("unknown type %q", k.Type)
}
