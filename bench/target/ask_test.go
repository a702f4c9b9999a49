package target

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestAnAnswerThatTakesLongIsReadToItsEnd(t *testing.T) {
	c := cluster(t, "serve", GopherlogConfig{Nodes: 1, Control: true})
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("first, "))
		w.(http.Flusher).Flush()
		time.Sleep(c.http.Timeout + 500*time.Millisecond)
		_, _ = w.Write([]byte("last"))
	}))
	defer port.Close()
	c.nodes[0].State, c.nodes[0].control = Running, port.Listener.Addr().String()
	if got, err := c.Ask(t.Context(), 1, "/voted"); err != nil || string(got) != "first, last" {
		t.Errorf("%q, %v", got, err)
	}
	c.nodes[0].State = Down
}
