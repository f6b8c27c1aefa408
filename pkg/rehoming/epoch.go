package rehoming

import (
	"fmt"
	"strconv"
	"strings"
)

// EpochAnnotation contains the epoch of the hub on its ManagedClusters. A hub that has not adopted a cluster has epoch
// 0, and no annotation.
const EpochAnnotation = "open-cluster-management.io/hub-epoch"

const (
	// MaxEpochNumber is the highest number of an epoch. Each JSON parser keeps it whole.
	MaxEpochNumber = 1 << 53
	// maxHub bounds the name of an adoption, in bytes.
	maxHub = 63
)

// Epoch numbers the hubs of a fleet, one after the other. Only the hub with the highest epoch may write to a cluster.
type Epoch struct {
	// Number increases with each adoption.
	Number int64
	// Hub identifies the adoption, so that two hubs that adopted from the same export differ. It is empty for a hub that
	// has not adopted the cluster.
	Hub string
}

// ParseEpoch parses the text of an epoch. The empty text is the zero epoch. Any other text must be exactly what String
// returns: a number without a sign or leading zeros, of at most MaxEpochNumber, and a name of at most 63 characters.
func ParseEpoch(text string) (Epoch, error) {
	if text == "" {
		return Epoch{}, nil
	}
	number, hub, ok := strings.Cut(text, "/")
	parsed, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || parsed < 0 || parsed > MaxEpochNumber || number != strconv.FormatInt(parsed, 10) ||
		hub == "" || len(hub) > maxHub || strings.ContainsFunc(hub, unexpected) {
		return Epoch{}, fmt.Errorf("%.80q is not an epoch, such as 1/4f1c9c1e", text)
	}
	return Epoch{Number: parsed, Hub: hub}, nil
}

// NextEpoch returns the number of an epoch that follows all epochs with at most the given number, or an error if there is
// none.
func NextEpoch(number int64) (int64, error) {
	if number < 0 || number >= MaxEpochNumber {
		return 0, fmt.Errorf("no epoch follows the number %d: the highest is %d", number, int64(MaxEpochNumber))
	}
	return number + 1, nil
}

func unexpected(r rune) bool {
	return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
}

// String returns the text of an epoch.
func (e Epoch) String() string {
	if e == (Epoch{}) {
		return ""
	}
	return strconv.FormatInt(e.Number, 10) + "/" + e.Hub
}

// Follows reports whether a hub with this epoch replaces a hub with the other epoch.
func (e Epoch) Follows(other Epoch) bool { return e.Number > other.Number }
