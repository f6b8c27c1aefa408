package embedded

const (
	// slabSize is the size of the memory that data share, in bytes.
	slabSize = 4 << 10
	// slabShare is how large data may be that share it.
	slabShare = slabSize / 8
)

// slab keeps the data of rows. Many small ones share memory, so that the garbage collector has one object to look at
// instead of many. The memory lasts as long as one of them, which is why only those data share that are likely to
// last together: what is loaded, and what a cluster reports first. All that changes later has memory of its own, so
// what is wasted is never more than there was at the beginning. The zero slab keeps all apart.
type slab struct {
	shares bool
	rest   []byte
}

// room is memory for so many bytes.
func (s *slab) room(n int) []byte {
	if !s.shares || n > slabShare {
		return make([]byte, n)
	}
	if n > len(s.rest) {
		s.rest = make([]byte, slabSize)
	}
	room := s.rest[:n:n]
	s.rest = s.rest[n:]
	return room
}

// keep is a copy of data.
func (s *slab) keep(data []byte) string {
	room := s.room(len(data))
	copy(room, data)
	return bytesAsString(room)
}

// share begins to keep data together, or ends that.
func (s *slab) share(shares bool) { s.shares, s.rest = shares, nil }
