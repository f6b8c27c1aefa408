package csr

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
)

// withHugeKey returns a request with an RSA key without a private part. A requester does
// not need the private key to make the server verify a signature.
func withHugeKey(t *testing.T, bits int) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, named(agentName, ownGroup), newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	type tbs struct {
		Version int
		Subject asn1.RawValue
		Key     struct {
			Algorithm pkix.AlgorithmIdentifier
			Key       asn1.BitString
		}
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	var request struct {
		TBS       tbs
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &request); err != nil {
		t.Fatal(err)
	}
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	key := x509.MarshalPKCS1PublicKey(&rsa.PublicKey{N: n.Sub(n, big.NewInt(1)), E: 1<<31 - 1})
	request.TBS.Key.Algorithm = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}
	request.TBS.Key.Key = asn1.BitString{Bytes: key, BitLength: 8 * len(key)}
	request.Algorithm = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue}
	request.Signature = asn1.BitString{Bytes: bytes.Repeat([]byte{1}, bits/8), BitLength: bits / 8 * 8}
	if der, err = asn1.Marshal(request); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// The server does not verify signatures of keys that are too large, because the time to verify
// increases with the size of the key.
func TestHugeKeysAreNotVerified(t *testing.T) {
	for bits, want := range map[int]string{maxRSABits: "signature of the request is invalid", maxRSABits + 8: "more than 8192", 40_000: "more than 8192", 100_000: "longer than"} {
		if _, err := parse(requestOf(creator, withHugeKey(t, bits))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parse() of a key with %d bits = %v, want an error that contains %q", bits, err, want)
		}
	}
}
