package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"gopherlog/bench/load"
	"gopherlog/bench/price"
)

// connectFlags say where a running cluster is and how to come in. No flag holds a secret: a process list shows flags to everybody.
type connectFlags struct {
	Brokers      []string `help:"host:port of at least one broker of the cluster." required:"" placeholder:"HOST:PORT"`
	TLS          bool     `name:"tls" help:"Encrypt; implied by -ca, -cert and -key."`
	CA           string   `name:"ca" help:"PEM file of the authorities that sign the brokers' certificates. Default: those that this machine trusts." type:"path" placeholder:"FILE"`
	Cert         string   `help:"PEM file of the client's certificate, for clusters that ask for one." type:"path" placeholder:"FILE"`
	Key          string   `help:"PEM file of the certificate's key." type:"path" placeholder:"FILE"`
	SASL         string   `name:"sasl" help:"Prove who you are: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512." enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512," default:"" placeholder:"MECHANISM"`
	User         string   `help:"User of -sasl."`
	PasswordFile string   `help:"File whose first line is the password of -sasl. Default: the variable GOPHERLOG_SASL_PASSWORD." type:"path" placeholder:"FILE"`
}

// security reads the files that the flags name, and tells everything that is wrong at once.
func (c *connectFlags) security(s *streams) (*load.Security, error) {
	out := &load.Security{Mechanism: c.SASL, User: c.User}
	var errs []error
	if c.TLS || c.CA != "" || c.Cert != "" || c.Key != "" {
		var err error
		out.TLS, err = c.tlsConfig()
		errs = append(errs, err)
	}
	if c.SASL != "" {
		password, err := c.password(s)
		out.Password, errs = password, append(errs, err)
		if c.SASL == "PLAIN" && out.TLS == nil {
			fmt.Fprintln(s.err, "note: SASL PLAIN without -tls shows the password to everybody on the way")
		}
	} else if c.PasswordFile != "" {
		errs = append(errs, errors.New("-password-file is given, and no -sasl"))
	}
	if len(errs) == 0 || errors.Join(errs...) == nil {
		errs = append(errs, out.Validate())
	}
	return out, errors.Join(errs...)
}

func (c *connectFlags) tlsConfig() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	var errs []error
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		pool := x509.NewCertPool()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("-ca: %w", err))
		case !pool.AppendCertsFromPEM(pem):
			errs = append(errs, fmt.Errorf("-ca: %s holds no certificate in PEM", c.CA))
		}
		out.RootCAs = pool
	}
	switch {
	case (c.Cert == "") != (c.Key == ""):
		errs = append(errs, errors.New("-cert and -key go together"))
	case c.Cert != "":
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			errs = append(errs, fmt.Errorf("-cert, -key: %w", err))
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, errors.Join(errs...)
}

// password comes from a file or the environment.
func (c *connectFlags) password(s *streams) (load.Secret, error) {
	if c.PasswordFile == "" {
		p := os.Getenv(price.PasswordVar)
		if p == "" {
			return "", fmt.Errorf("-sasl needs a password: name its file with -password-file, or put it into the variable %s", price.PasswordVar)
		}
		return load.Secret(p), nil
	}
	b, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("-password-file: %w", err)
	}
	if st, err := os.Stat(c.PasswordFile); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(s.err, "note: %s can be read by others: chmod 600 keeps the password to you\n", c.PasswordFile)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	first = strings.TrimSuffix(first, "\r")
	if first == "" {
		return "", fmt.Errorf("-password-file: the first line of %s is empty", c.PasswordFile)
	}
	return load.Secret(first), nil
}
