package agent

import (
	"os"

	"k8s.io/client-go/rest"
)

// caOf returns a function that reads the CA that a client trusts now. The CA is empty if the
// client trusts the CAs of its machine.
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
