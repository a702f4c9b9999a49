package child

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Addrs returns n loopback addresses that nobody listens on, all different.
func Addrs(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at once, so that no address comes twice
		out = append(out, l.Addr().String())
	}
	return out, nil
}

const maxAnswer = 64 << 20

// Get reads a page; any status but 200 is an error with the page's text.
func Get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(b))
	}
	return b, err
}

// Ready waits until the node with this admin address answers /readyz, its process ends or ctx does.
func (p *Process) Ready(ctx context.Context, admin string) error {
	for {
		_, err := Get(ctx, "http://"+admin+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended; it printed: %s", p.Said())
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w; it printed: %s", err, p.Said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
