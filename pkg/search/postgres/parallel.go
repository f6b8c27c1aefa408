package postgres

import (
	"runtime"
	"sync"
	"sync/atomic"
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
	var next atomic.Int64
	work := func() error {
		for {
			begin := int(next.Add(partSize)) - partSize
			if begin >= n {
				return nil
			}
			for i := begin; i < min(begin+partSize, n); i++ {
				if err := call(i); err != nil {
					next.Store(int64(n))
					return err
				}
			}
		}
	}
	workers := min(runtime.GOMAXPROCS(0), mostEncoders, (n+partSize-1)/partSize)
	if workers <= 1 {
		return work()
	}
	errs := make([]error, workers)
	var working sync.WaitGroup
	for i := range workers {
		working.Go(func() { errs[i] = work() })
	}
	working.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
