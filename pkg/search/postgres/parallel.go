package postgres

import (
	"runtime"

	"golang.org/x/sync/errgroup"
)

const (
	// partSize is the number of resources that a goroutine encodes at a time.
	partSize = 64
	// maxEncoders bounds the goroutines of one report, because other reports also require cores.
	maxEncoders = 4
)

// inParallel executes call for each index below n, concurrently if n is large. It returns one of
// the errors after all calls have ended.
func inParallel(n int, call func(i int) error) error {
	var encoders errgroup.Group
	encoders.SetLimit(min(runtime.GOMAXPROCS(0), maxEncoders))
	for begin := 0; begin < n; begin += partSize {
		encoders.Go(func() error {
			for i := begin; i < min(begin+partSize, n); i++ {
				if err := call(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return encoders.Wait()
}
