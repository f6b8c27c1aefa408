package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// hubAddress is a hub that flags name, and the token with which a cluster registers there.
type hubAddress struct {
	token, server, caFile, caData string
	// ca verifies the hub. It is nil if the system does.
	ca []byte
}

// addFlags adds the flags. Their descriptions contain the name of the hub and when they are required.
func (h *hubAddress) addFlags(flags *pflag.FlagSet, hub, required string) {
	flags.StringVar(&h.token, "hub-token", "", "Token that clusteradm get token prints on "+hub+". "+required)
	flags.StringVar(&h.server, "hub-apiserver", "", "URL of "+hub+". "+required)
	flags.StringVar(&h.caFile, "ca-file", "", "PEM file with the certificate authority of "+hub+". If empty, the system must trust it or the hub must publish it.")
	flags.StringVar(&h.caData, "ca-data", "", "Content of --ca-file in base64.")
}

// complete checks the flags and reads the certificate authority that they name.
func (h *hubAddress) complete(hub string) []error {
	var errs []error
	switch {
	case h.token == "":
		errs = append(errs, fmt.Errorf("--hub-token is required; clusteradm get token prints one on %s", hub))
	case strings.ContainsFunc(h.token, func(r rune) bool { return r <= ' ' || r > '~' }):
		errs = append(errs, errors.New("--hub-token is not a token"))
	}
	if h.server == "" {
		errs = append(errs, errors.New("--hub-apiserver is required"))
	} else if err := checkURL(h.server); err != nil {
		errs = append(errs, fmt.Errorf("--hub-apiserver: %w", err))
	}
	if ca, err := givenAuthority(h.caFile, h.caData); err != nil {
		errs = append(errs, err)
	} else if ca != nil {
		h.ca = ca
	}
	return errs
}

// client returns a client of the hub that uses the token. If no flag names the certificate authority, it is read from the
// hub, and warn is called.
func (h *hubAddress) client(ctx context.Context, hub string, warn func(format string, args ...any)) (versioned.Interface, error) {
	if h.ca == nil {
		trust, err := discoverTrust(ctx, h.server)
		if err != nil {
			return nil, err
		}
		if h.ca = trust.ca; trust.fingerprint != "" {
			warn("the certificate authority of %s was read from the hub itself and is not verified. The SHA-256 hash of the PEM is %s. To verify it, give --ca-file.", hub, trust.fingerprint)
		}
	}
	return versioned.NewForConfig(&rest.Config{Host: h.server, BearerToken: h.token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: h.ca}})
}

// rejected returns the error for a token that the hub does not accept.
func (h *hubAddress) rejected(hub string) error {
	return fmt.Errorf("%s %s rejects --hub-token, which may have expired; clusteradm get token prints a new one", hub, h.server)
}
