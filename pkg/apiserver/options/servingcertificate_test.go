package options

import (
	"strings"
	"testing"
)

func TestServingCertificateFlags(t *testing.T) {
	for flags, want := range map[string][]string{
		"": nil,
		"--tls-cert-file=a --tls-private-key-file=b":                                      nil,
		"--serving-certificate-secret=serving":                                            nil,
		"--serving-certificate-secret=serving --tls-cert-file=a --tls-private-key-file=b": {"--serving-certificate-secret", "--tls-cert-file", "--tls-private-key-file"},
		"--serving-certificate-secret=serving --serving-ca-validity=100h":                 {"--serving-ca-validity", "--serving-certificate-validity", "6480h"},
		"--serving-certificate-secret=serving --serving-certificate-validity=1s":          {"--serving-certificate-validity", "5s"},
		"--serving-certificate-secret=a/b":                                                {"--serving-certificate-secret", "a/b"},
		"--serving-certificate-secret=serving --serving-certificate-service=a.b":          {"--serving-certificate-service", "a.b"},
	} {
		t.Run(flags, func(t *testing.T) {
			o := New()
			o.EmbeddedEtcd.DataDir = t.TempDir()
			sets := o.Flags()
			serving := sets.FlagSet("secure serving")
			if err := serving.Parse(strings.Fields(flags)); err != nil {
				t.Fatal(err)
			}
			completed, err := o.Complete()
			if err != nil {
				t.Fatal(err)
			}
			err = completed.Validate()
			if err == nil {
				if len(want) > 0 {
					t.Errorf("Validate(%s) = nil, want an error that contains %q", flags, want)
				}
				return
			}
			if refused := strings.Contains(err.Error(), "--serving-"); refused != (len(want) > 0) {
				t.Errorf("Validate(%s) = %v, want %q", flags, err, want)
			}
			for _, text := range want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("Validate(%s) = %v, want an error that contains %q", flags, err, text)
				}
			}
		})
	}
}
