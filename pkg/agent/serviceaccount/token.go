package serviceaccount

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// maxSeconds is the longest lifetime that API servers accept in a TokenRequest.
	maxSeconds = 1 << 32
	// skewTolerance is the clock skew up to which the agent uses its own clock.
	skewTolerance = 30 * time.Second
)

type claims struct {
	subject   string
	audiences []string
	// accountUID is the UID of its ServiceAccount.
	accountUID types.UID
	// issued and expires are times of the managed cluster.
	issued, expires time.Time
}

// parseToken returns the claims of a token. It does not verify the signature, because only the
// managed cluster can.
func parseToken(token string) (claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, errors.New("not a JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, fmt.Errorf("not a JSON Web Token: %w", err)
	}
	var raw struct {
		Subject    string      `json:"sub"`
		Audiences  audiences   `json:"aud"`
		Issued     json.Number `json:"iat"`
		Expires    json.Number `json:"exp"`
		Kubernetes struct {
			ServiceAccount struct {
				UID types.UID `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &raw); err != nil {
		return claims{}, fmt.Errorf("not a JSON Web Token: %w", err)
	}
	c := claims{subject: raw.Subject, audiences: raw.Audiences, accountUID: raw.Kubernetes.ServiceAccount.UID}
	if c.issued, err = numericDate(raw.Issued); err != nil {
		return claims{}, fmt.Errorf("token without a time of issue: %w", err)
	}
	if c.expires, err = numericDate(raw.Expires); err != nil {
		return claims{}, fmt.Errorf("token without an expiration: %w", err)
	}
	if !c.expires.After(c.issued) {
		return claims{}, errors.New("token that expires before it is issued")
	}
	return c, nil
}

// audiences is the claim "aud", a string or a list.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(data []byte) error {
	var single string
	if json.Unmarshal(data, &single) == nil {
		*a = audiences{single}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// numericDate converts seconds since 1970. The number may have a fraction.
func numericDate(number json.Number) (time.Time, error) {
	seconds, err := number.Float64()
	if err != nil {
		return time.Time{}, err
	}
	if seconds < 1 || seconds > 1<<38 {
		return time.Time{}, fmt.Errorf("%s is out of range", number)
	}
	return time.Unix(int64(seconds), 0), nil
}

// due returns the time at which the token is replaced: 75 % to 80 % of the granted lifetime, so
// that tokens that were issued together are not replaced together.
func (c claims) due() time.Time {
	lifetime := c.expires.Sub(c.issued)
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(c.accountUID))
	_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(c.issued.Unix())))
	fraction := float64(hash.Sum64()>>11) / (1 << 53)
	return c.issued.Add(lifetime/5*4 - time.Duration(fraction*float64(lifetime/20)))
}

// fresh reports whether less than 10 % of the lifetime has passed.
func (c claims) fresh(now time.Time) bool {
	return now.Before(c.issued.Add(c.expires.Sub(c.issued) / 10))
}

type request struct {
	// text is the canonical form that is stored in an annotation of the Secret.
	text      string
	audiences []string
	seconds   int64
}

func requestOf(spec *v1beta1.ManagedServiceAccountSpec) (request, error) {
	validity, err := v1beta1.ParseValidity(spec.Rotation.Validity)
	if err != nil {
		return request{}, field.Invalid(field.NewPath("spec", "rotation", "validity"), spec.Rotation.Validity, err.Error())
	}
	// The order of audiences is not significant.
	sorted := slices.Sorted(slices.Values(spec.Audiences))
	text, _ := json.Marshal(struct {
		Audiences []string `json:"audiences,omitempty"`
		Validity  string   `json:"validity"`
	}{sorted, validity.String()}) // Marshal does not fail for these types
	return request{text: string(text), audiences: spec.Audiences, seconds: min(int64(validity.Seconds()), maxSeconds)}, nil
}

// minted is a token that is not stored yet.
type minted struct {
	claims
	token   string
	request string
}

func (c *Controller) mint(ctx context.Context, account *corev1.ServiceAccount, wanted request) (*minted, error) {
	answer, err := c.Managed.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: wanted.audiences, ExpirationSeconds: &wanted.seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token request: %w", err)
	}
	got, err := parseToken(answer.Status.Token)
	if err != nil {
		return nil, fmt.Errorf("the managed cluster issued a %w", err)
	}
	if expires := answer.Status.ExpirationTimestamp.Time; expires.After(got.issued) && expires.Before(got.expires) {
		got.expires = expires
	}
	if got.subject != subject(account.Namespace, account.Name) {
		return nil, fmt.Errorf("the managed cluster issued a token for subject %s", got.subject)
	}
	c.learnSkew(got.issued)
	if got.accountUID != account.UID {
		// The ServiceAccount was deleted and created again during the pass.
		return nil, reconcile.ErrOutdated
	}
	return &minted{claims: got, token: answer.Status.Token, request: wanted.text}, nil
}

func subject(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// learnSkew determines the clock skew from a token that was just issued. Without it, an agent whose
// clock is ahead by most of a token lifetime would replace tokens endlessly.
func (c *Controller) learnSkew(issued time.Time) {
	skew := issued.Sub(c.Clock.Now())
	if skew.Abs() < skewTolerance {
		skew = 0
	}
	c.skew.Store(int64(skew))
}

// managedNow returns the time of the managed cluster, based on the last known clock skew.
func (c *Controller) managedNow() time.Time {
	return c.Clock.Now().Add(time.Duration(c.skew.Load()))
}

func (c *Controller) review(ctx context.Context, secret *corev1.Secret) (verdict, error) {
	token := string(secret.Data[v1beta1.SecretTokenKey])
	held, err := parseToken(token)
	if err != nil {
		return rejected, nil
	}
	answer, err := c.Managed.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: held.audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return notAsked, fmt.Errorf("token review: %w", err)
	}
	if !answer.Status.Authenticated || answer.Status.User.Username != held.subject {
		return rejected, nil
	}
	return accepted, nil
}
