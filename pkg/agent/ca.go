package agent

import (
	"os"

	"k8s.io/client-go/rest"
)

// caOf returns how to read the CA that a client trusts, at the moment. It is
// empty for one that trusts the authorities of its machine.
func caOf(load func() (*rest.Config, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		config, err := load()
		if err != nil {
			return nil, err
		}
		if len(config.CAData) > 0 || config.CAFile == "" {
			return config.CAData, nil
		}
		return os.ReadFile(config.CAFile)
	}
}
