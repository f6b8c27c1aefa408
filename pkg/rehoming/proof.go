package rehoming

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	// KeyClaim is the claim of a ManagedCluster with the hash of its agent's rehoming key. Only the agent of the cluster
	// may write claims.
	KeyClaim = "rehoming.open-cluster-management.io/key"
	// ProofAnnotation contains the proof on a CertificateSigningRequest.
	ProofAnnotation = "rehoming.open-cluster-management.io/proof"
	// KeyAnnotation contains the hash of the key on the registration of an adopted cluster, AdoptedAnnotation the time of
	// the adoption in RFC 3339, and DecisionAnnotation the time of the decision about the cluster that was adopted, or
	// nothing if there was none. Only the server writes registrations.
	KeyAnnotation      = KeyClaim
	AdoptedAnnotation  = "rehoming.open-cluster-management.io/adopted-at"
	DecisionAnnotation = "rehoming.open-cluster-management.io/adopted-decision"
)

const (
	keyType = "EC PRIVATE KEY"
	// purpose separates the signatures of this package from all others of the key.
	purpose = "rehoming.open-cluster-management.io/v1\x00"
	// maxProof bounds a proof, in bytes.
	maxProof = 1024
)

// proof is the content of ProofAnnotation.
type proof struct {
	// Key is the public key in the form of X.509, and Signature an ECDSA signature in ASN.1.
	Key       []byte `json:"key"`
	Signature []byte `json:"signature"`
}

// NewKey returns a new rehoming key in PEM.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("rehoming key: %w", err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("rehoming key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: encoded}), nil
}

func parseKey(key []byte) (*ecdsa.PrivateKey, []byte, error) {
	block, _ := pem.Decode(key)
	if block == nil || block.Type != keyType {
		return nil, nil, errors.New("rehoming key: not a PEM block of type " + keyType)
	}
	parsed, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("rehoming key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&parsed.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("rehoming key: %w", err)
	}
	return parsed, public, nil
}

func hash(public []byte) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:])
}

// KeyHash returns the hash of the public part of a key.
func KeyHash(key []byte) (string, error) {
	_, public, err := parseKey(key)
	if err != nil {
		return "", err
	}
	return hash(public), nil
}

// digest covers the whole certificate request: the name of the agent, and the key that the certificate is for.
func digest(request []byte) []byte {
	sum := sha256.Sum256(append([]byte(purpose), request...))
	return sum[:]
}

// Prove returns the proof that the holder of a key makes a certificate request, which is in PEM.
func Prove(key, request []byte) (string, error) {
	signer, public, err := parseKey(key)
	if err != nil {
		return "", err
	}
	content, _ := pem.Decode(request)
	if content == nil {
		return "", errors.New("rehoming proof: the certificate request is not in PEM")
	}
	signature, err := ecdsa.SignASN1(rand.Reader, signer, digest(content.Bytes))
	if err != nil {
		return "", fmt.Errorf("rehoming proof: %w", err)
	}
	encoded, err := json.Marshal(proof{Key: public, Signature: signature})
	if err != nil {
		return "", fmt.Errorf("rehoming proof: %w", err)
	}
	return base64.StdEncoding.EncodeToString(encoded), nil
}

// Verify returns nil if a proof shows that the holder of the key with this hash made a certificate request, which is in
// PEM. Its cost is bounded.
func Verify(encoded, keyHash string, request []byte) error {
	if encoded == "" {
		return errors.New("it contains no proof")
	}
	if len(encoded) > maxProof {
		return fmt.Errorf("its proof is longer than %d bytes", maxProof)
	}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("its proof is not base64: %w", err)
	}
	var given proof
	if err := json.Unmarshal(content, &given); err != nil {
		return fmt.Errorf("its proof cannot be parsed: %w", err)
	}
	if hash(given.Key) != keyHash {
		return errors.New("its proof is by another key than that of the cluster")
	}
	parsed, err := x509.ParsePKIXPublicKey(given.Key)
	if err != nil {
		return fmt.Errorf("the key of its proof cannot be parsed: %w", err)
	}
	public, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("the key of its proof is a %T, not an ECDSA key", parsed)
	}
	block, _ := pem.Decode(request)
	if block == nil || !ecdsa.VerifyASN1(public, digest(block.Bytes), given.Signature) {
		return errors.New("the signature of its proof does not match the request")
	}
	return nil
}
