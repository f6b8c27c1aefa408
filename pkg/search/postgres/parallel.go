package postgres

import (
	"runtime"

	"golang.org/x/sync/errgroup"
)

const (
	// partSize is how many resources are encoded by one goroutine at a time.
	partSize = 64
	// mostEncoders bounds the goroutines of one report: others' need cores too.
	mostEncoders = 4
)

// inParallel calls for each index below n, from several goroutines where n is large, and returns when all have
// ended. It returns one of the errors.
func inParallel(n int, call func(i int) error) error {
	var encoders errgroup.Group
	encoders.SetLimit(min(runtime.GOMAXPROCS(0), mostEncoders))
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
