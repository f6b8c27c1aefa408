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

const (
	// accessEntryType is the type of entries for users and programs. The other types are for nodes.
	accessEntryType = "STANDARD"

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

// Hash returns a hash of all desired resources. It differs between versions of this package that compute different
// resources. It is not the hash of the identity.
func (d Desired) Hash() string {
	// The order of keys of maps in JSON is fixed.
	whole, err := json.Marshal([]any{d, d.Username(), d.Groups(), PlanProvision(d, nil)})
	if err != nil {
		// The encoding of strings, and of lists and maps of strings, cannot fail.
		return ""
	}
	sum := sha256.Sum256(whole)
	return hex.EncodeToString(sum[:])
}

// Validate returns an error for each value that AWS would reject.
func (d Desired) Validate() error {
	errs := []error{d.Identity.Validate()}
	if d.ClusterName == "" {
		errs = append(errs, errors.New("the name of the managed cluster is empty"))
	}
	if d.Mapping != AccessEntry && d.Mapping != ConfigMap {
		errs = append(errs, fmt.Errorf("mapping %q must be %s or %s", d.Mapping, AccessEntry, ConfigMap))
	}
	return errors.Join(append(errs, ValidateResourceTags(d.ResourceTags))...)
}

// ValidateResourceTags returns all errors of the additional tags.
func ValidateResourceTags(tags map[string]string) error {
	var errs []error
	own := Identity{}.Tags()
	// IAM compares keys without regard to case.
	seen := map[string]bool{}
	if limit := maxTags - len(own); len(tags) > limit {
		errs = append(errs, fmt.Errorf("%d resource tags are more than %d", len(tags), limit))
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		folded := strings.ToLower(key)
		_, taken := own[folded]
		twice := seen[folded]
		seen[folded] = true
		switch {
		case key == "" || utf8.RuneCountInString(key) > maxTagKeyLength:
			errs = append(errs, fmt.Errorf("key %.200q of a resource tag must have 1 to %d characters", key, maxTagKeyLength))
		case taken:
			errs = append(errs, fmt.Errorf("resource tag %q is one that the server sets itself", key))
		case twice:
			errs = append(errs, fmt.Errorf("key %q of a resource tag differs from another key only by case", key))
		case strings.HasPrefix(folded, "aws:"):
			errs = append(errs, fmt.Errorf("key %q of a resource tag must not have the prefix aws: of AWS itself", key))
		case !tagPattern.MatchString(key):
			errs = append(errs, fmt.Errorf("key %q of a resource tag may only have letters, digits, spaces and _.:/=+-@", key))
		case utf8.RuneCountInString(value) > maxTagValueLength:
			errs = append(errs, fmt.Errorf("the value of resource tag %q must have at most %d characters", key, maxTagValueLength))
		case !tagPattern.MatchString(value):
			errs = append(errs, fmt.Errorf("value %q of resource tag %q may only have letters, digits, spaces and _.:/=+-@", value, key))
		}
	}
	return errors.Join(errs...)
}
