package history

import "time"

// slow is the duration of a call from which a mark's recovery includes the call even if it succeeds.
const slow = time.Second

// call is one call as the user of client-go sees it.
type call struct {
	begin, end time.Duration
	succeeded  bool
}

// unavailable returns the longest time that a client needed until a call succeeded, repetitions included.
// If the last call failed, the end of the run counts as its success.
func unavailable(clients []*client, end time.Duration) time.Duration {
	var longest time.Duration
	for _, c := range clients {
		since := time.Duration(-1)
		for _, done := range c.calls {
			if since < 0 {
				since = done.begin
			}
			if done.succeeded {
				longest, since = max(longest, done.end-since), -1
			}
		}
		if since >= 0 {
			longest = max(longest, end-since)
		}
	}
	return longest
}

// recoveries returns what followed each mark.
func recoveries(clients []*client, marks []mark) []Recovery {
	out := make([]Recovery, 0, len(marks))
	for i, m := range marks {
		next := forever
		if i < len(marks)-1 {
			next = marks[i+1].at
		}
		recovery := Recovery{Name: m.name}
		for _, c := range clients {
			failing := false
			for _, done := range c.calls {
				if done.end >= next {
					break
				}
				if done.end < m.at {
					failing = !done.succeeded
				} else if !done.succeeded {
					recovery.Failed++
					failing = true
				} else if failing || done.end-done.begin > slow {
					recovery.Recovered, failing = max(recovery.Recovered, done.end-m.at), false
				}
			}
			recovery.Incomplete = recovery.Incomplete || failing
		}
		out = append(out, recovery)
	}
	return out
}
