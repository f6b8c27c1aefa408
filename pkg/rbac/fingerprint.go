package rbac

import (
	"crypto/sha256"
	"encoding/binary"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Fingerprint is equal only for equal content.
type Fingerprint [sha256.Size]byte

// Content is a list of texts in a form that is equal only for equal lists.
type Content []byte

// Add adds a list of texts.
func (c *Content) Add(texts ...string) {
	*c = binary.AppendUvarint(*c, uint64(len(texts)))
	for _, text := range texts {
		*c = append(binary.AppendUvarint(*c, uint64(len(text))), text...)
	}
}

// AddFingerprint adds the fingerprint of other content.
func (c *Content) AddFingerprint(f Fingerprint) { *c = append(*c, f[:]...) }

// Fingerprint returns the fingerprint of the content.
func (c *Content) Fingerprint() Fingerprint { return sha256.Sum256(*c) }

// FingerprintOf returns the fingerprint of rules.
func FingerprintOf(rules []rbacv1.PolicyRule) Fingerprint {
	content := contentOf(rules)
	return content.Fingerprint()
}

func contentOf(rules []rbacv1.PolicyRule) (content Content) {
	for i := range rules {
		rule := &rules[i]
		for _, list := range [...][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
			content.Add(list...)
		}
	}
	return content
}
