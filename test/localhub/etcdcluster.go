package localhub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/client-go/util/cert"
)

// EtcdClusterOptions are the options of an [EtcdCluster]. Dir is required.
type EtcdClusterOptions struct {
	// Dir contains the certificates and the data.
	Dir string
	// Hosts are the hosts of the members. If it is nil, three members run on this machine.
	Hosts []*Host
	// DataDirs are the directories of the data of the members, if set. <Dir>/<name> otherwise.
	DataDirs []string
}

// EtcdCluster is an etcd cluster with TLS between its members and for its clients.
type EtcdCluster struct {
	Members []*EtcdMember
	// Endpoints are the URLs for clients.
	Endpoints []string

	dir string
	// serving signs the certificates of members, and client those of clients.
	serving, client *authority
}

// EtcdMember is one member of an EtcdCluster.
type EtcdMember struct {
	*Process
	// Endpoint is the URL for clients, and Data the directory of its data.
	Endpoint, Data string

	dir string
}

// NewEtcdCluster returns an etcd cluster without starting it.
func NewEtcdCluster(opts EtcdClusterOptions) (*EtcdCluster, error) {
	if opts.Hosts == nil {
		opts.Hosts = make([]*Host, 3)
	}
	path, err := Binary(BinDir(), "etcd")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	c := &EtcdCluster{dir: opts.Dir}
	if c.serving, err = loadAuthority(c.dir, "serving-ca"); err != nil {
		return nil, err
	}
	if c.client, err = loadAuthority(c.dir, "client-ca"); err != nil {
		return nil, err
	}
	if err := c.TrustClients(); err != nil {
		return nil, err
	}
	if err := c.IssueAdmin(); err != nil {
		return nil, err
	}
	var peers, cluster []string
	for i, host := range opts.Hosts {
		address, name := host.address(), fmt.Sprintf("etcd-%d", i)
		var ports [2]string
		for i := range ports {
			port, err := FreePort()
			if err != nil {
				return nil, err
			}
			ports[i] = strconv.Itoa(port)
		}
		m := &EtcdMember{
			Endpoint: "https://" + net.JoinHostPort(address, ports[0]), dir: filepath.Join(c.dir, name),
			Process: &Process{Name: name, Path: path, Host: host, LogFile: filepath.Join(opts.Dir, "logs", name+".log")},
		}
		if m.Data = filepath.Join(m.dir, "data"); opts.DataDirs != nil {
			m.Data = opts.DataDirs[i]
		}
		if err := c.IssueServing(m); err != nil {
			return nil, err
		}
		m.Ready = c.healthy(m)
		peers = append(peers, "https://"+net.JoinHostPort(address, ports[1]))
		cluster = append(cluster, name+"="+peers[i])
		c.Members, c.Endpoints = append(c.Members, m), append(c.Endpoints, m.Endpoint)
	}
	for i, m := range c.Members {
		m.Args = []string{
			"--name=" + m.Name, "--data-dir=" + m.Data,
			"--listen-client-urls=" + m.Endpoint, "--advertise-client-urls=" + m.Endpoint,
			"--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i],
			"--initial-cluster=" + strings.Join(cluster, ","), "--initial-cluster-token=etcd",
			"--cert-file=" + filepath.Join(m.dir, "tls.crt"), "--key-file=" + filepath.Join(m.dir, "tls.key"),
			"--client-cert-auth", "--trusted-ca-file=" + c.trustFile(),
			"--peer-cert-file=" + filepath.Join(m.dir, "tls.crt"), "--peer-key-file=" + filepath.Join(m.dir, "tls.key"),
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + c.serving.certFile,
			"--watch-progress-notify-interval=5s", "--log-level=warn",
		}
	}
	return c, nil
}

func (c *EtcdCluster) trustFile() string { return filepath.Join(c.dir, "trusted-clients.crt") }

// TrustClients writes the authorities whose client certificates members accept: the current one, and the previous
// ones in also. Members read them when they start.
func (c *EtcdCluster) TrustClients(also ...*x509.Certificate) error {
	content, err := cert.EncodeCertificates(append([]*x509.Certificate{c.client.cert}, also...)...)
	if err != nil {
		return err
	}
	return writeFile(c.trustFile(), content)
}

// ReplaceClientAuthority creates a new authority for clients, and returns the certificate of the previous one.
func (c *EtcdCluster) ReplaceClientAuthority() (*x509.Certificate, error) {
	previous := c.client.cert
	if err := errors.Join(os.Remove(c.client.certFile), os.Remove(c.client.keyFile)); err != nil {
		return nil, err
	}
	var err error
	c.client, err = loadAuthority(c.dir, "client-ca")
	return previous, err
}

// IssueServing writes a new certificate for a member, which reads it for each connection.
func (c *EtcdCluster) IssueServing(m *EtcdMember) error {
	certPEM, keyPEM, err := c.serving.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: m.Name},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.ParseIP(loopback), net.ParseIP(m.Host.address())},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	_, _, err = writePair(m.dir, "tls", certPEM, keyPEM)
	return err
}

// IssueClient writes ca.crt, tls.crt and tls.key of a new client to dir. The certificate expires at a time, or in a year
// if the time is zero.
func (c *EtcdCluster) IssueClient(dir string, expires time.Time) error {
	bundle, err := c.serving.bundle()
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := c.client.issueClient(expires, filepath.Base(dir), nil)
	if err != nil {
		return err
	}
	_, _, err = writePair(dir, "tls", certPEM, keyPEM)
	return errors.Join(writeFile(filepath.Join(dir, "ca.crt"), bundle), err)
}

// ServerArgs returns the arguments of an apiserver that uses the cluster with the certificate of IssueClient in dir.
func (c *EtcdCluster) ServerArgs(dir string) []string {
	return []string{
		"--etcd-servers=" + strings.Join(c.Endpoints, ","), "--etcd-cafile=" + filepath.Join(dir, "ca.crt"),
		"--etcd-certfile=" + filepath.Join(dir, "tls.crt"), "--etcd-keyfile=" + filepath.Join(dir, "tls.key"),
	}
}

// AdminTLS returns the TLS configuration of the test's own client. It reads the current certificate.
func (c *EtcdCluster) AdminTLS() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(c.serving.cert)
	dir := filepath.Join(c.dir, "admin")
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		return &pair, err
	}}
}

// IssueAdmin replaces the certificate of the test's own client.
func (c *EtcdCluster) IssueAdmin() error {
	return c.IssueClient(filepath.Join(c.dir, "admin"), time.Time{})
}

// healthy returns a readiness check, which fails while the member has no leader.
func (c *EtcdCluster) healthy(m *EtcdMember) func(context.Context) error {
	transport := &http.Transport{TLSClientConfig: c.AdminTLS(), DisableKeepAlives: true}
	if m.Host != nil {
		transport.DialContext = m.Host.Dial
	}
	client := &http.Client{Transport: transport}
	return func(ctx context.Context) error { return httpOK(ctx, client, m.Endpoint+"/health") }
}

// Client returns a client of the members in endpoints, or of all members without endpoints.
func (c *EtcdCluster) Client(endpoints ...string) (*clientv3.Client, error) {
	if len(endpoints) == 0 {
		endpoints = c.Endpoints
	}
	config := clientv3.Config{Endpoints: endpoints, TLS: c.AdminTLS(), Logger: zap.NewNop(), DialTimeout: 5 * time.Second}
	if host := c.Members[0].Host; host != nil {
		config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return host.Dial(ctx, "tcp", address)
		}))
	}
	return clientv3.New(config)
}

// Leader returns the index of the member that leads the cluster.
func (c *EtcdCluster) Leader(ctx context.Context) (int, error) {
	client, err := c.Client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
	var errs []error
	for i, m := range c.Members {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := client.Status(ctx, m.Endpoint)
		cancel()
		if err == nil && status.Leader == status.Header.MemberId {
			return i, nil
		}
		errs = append(errs, err)
	}
	return 0, errors.Join(append(errs, errors.New("no member leads the etcd cluster"))...)
}

// Start starts all members and returns when they are healthy.
func (c *EtcdCluster) Start(ctx context.Context) error {
	for _, m := range c.Members {
		if err := m.Launch(); err != nil {
			return err
		}
	}
	for _, m := range c.Members {
		if err := m.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills all members. The test no longer needs their data.
func (c *EtcdCluster) Stop(context.Context) error {
	var errs []error
	for _, m := range slices.Backward(c.Members) {
		errs = append(errs, m.Kill())
	}
	return errors.Join(errs...)
}
