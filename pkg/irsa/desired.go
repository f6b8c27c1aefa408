package irsa

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of IAM. Lengths are in characters.
const (
	maxTags           = 50
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

// tagPattern matches keys and values of tags that both IAM and EKS accept.
var tagPattern = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

// Username returns the user name of the managed cluster on the hub. It cannot equal the name of another user of the hub.
func (d Desired) Username() string {
	return "open-cluster-management:" + d.ClusterName
}

// Groups returns the groups of the managed cluster on the hub. EKS rejects groups that
// begin with "system:" in access entries, but not in the ConfigMap.
func (d Desired) Groups() []string {
	group := "open-cluster-management:" + d.ClusterName
	if d.Mapping == ConfigMap {
		group = "system:" + group
	}
	return []string{group}
}

// Tags returns the tags of all created resources: the tags of the identity and the ResourceTags.
func (d Desired) Tags() map[string]string {
	tags := maps.Clone(d.ResourceTags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, d.Identity.Tags())
	return tags
}

// MissingTags returns the wanted tags that are missing or have another value.
func MissingTags(wanted, have map[string]string) map[string]string {
	missing := maps.Clone(wanted)
	maps.DeleteFunc(missing, func(key, value string) bool {
		existing, found := have[key]
		return found && existing == value
	})
	return missing
}

// Hash returns a hash of all desired resources. It differs between versions of this package that compute different
// resources. It is not the hash of the identity.
func (d Desired) Hash() string {
	// The order of keys of maps in JSON is fixed.
	whole, err := json.Marshal([]any{d, d.Username(), d.Groups(), d.HubTrustPolicy(), d.HubAccessPolicy(), d.Tags()})
	if err != nil {
		// The encoding of strings, and of lists and maps of strings, cannot fail.
		return ""
	}
	sum := sha256.Sum256(whole)
	return hex.EncodeToString(sum[:])
}

// ValidateResourceTags returns an error for each additional tag that AWS would reject, or that the server sets itself.
func ValidateResourceTags(tags map[string]string) error {
	var errs []error
	// IAM compares keys without regard to case.
	seen := map[string]bool{}
	for key := range (Identity{}).Tags() {
		seen[key] = true
	}
	if limit := maxTags - len(seen); len(tags) > limit {
		errs = append(errs, fmt.Errorf("%d resource tags are more than %d", len(tags), limit))
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		folded := strings.ToLower(key)
		if seen[folded] || strings.HasPrefix(folded, "aws:") {
			errs = append(errs, fmt.Errorf("key %.200q of a resource tag must not equal another key, or a key that the server sets itself, in any case, and must not have the prefix aws:", key))
		}
		if key == "" || utf8.RuneCountInString(key) > maxTagKeyLength || utf8.RuneCountInString(tags[key]) > maxTagValueLength ||
			!tagPattern.MatchString(key) || !tagPattern.MatchString(tags[key]) {
			errs = append(errs, fmt.Errorf("resource tag %.200q=%.300q must have a key of 1 to %d and a value of at most %d letters, digits, spaces and _.:/=+-@",
				key, tags[key], maxTagKeyLength, maxTagValueLength))
		}
		seen[folded] = true
	}
	return errors.Join(errs...)
}
