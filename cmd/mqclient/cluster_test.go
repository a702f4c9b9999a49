package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAPortThatIsNoNodesIsToldFromARefusal(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var answer statusAnswer
	if err := exchange(t.Context(), http.MethodPost, s.Listener.Addr().String(), "/recover", &answer); err == nil || !strings.Contains(err.Error(), "404 Not Found: is that a node's HTTP port") {
		t.Error(err)
	}
}
