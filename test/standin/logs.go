package standin

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/util/cert"
)

const loopback = "127.0.0.1"

// logServer serves the logs of containers where the API server expects a kubelet.
type logServer struct {
	port   int
	server *http.Server
}

func (l *logServer) close() { _ = l.server.Close() }

func (s *Standin) serveLogs() (*logServer, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(loopback, []net.IP{net.ParseIP(loopback)}, nil)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of the log server: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the log server: %w", err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening for the log server: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.handleLogs)
	server := &http.Server{
		Handler:           mux,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // returns when the server is closed
	return &logServer{port: listener.Addr().(*net.TCPAddr).Port, server: server}, nil
}

func (s *Standin) handleLogs(w http.ResponseWriter, r *http.Request) {
	pod, name := r.PathValue("pod"), r.PathValue("container")
	previous := r.FormValue("previous") == "true"
	log, ok := s.logOf(r.PathValue("namespace"), pod, name, previous)
	if !ok {
		which := "container"
		if previous {
			which = "previous terminated container"
		}
		http.Error(w, fmt.Sprintf("%s %q in pod %q not found", which, name, pod), http.StatusBadRequest)
		return
	}
	if n, err := strconv.Atoi(r.FormValue("tailLines")); err == nil {
		log = tail(log, n)
	}
	if n, err := strconv.Atoi(r.FormValue("limitBytes")); err == nil {
		log = log[:min(n, len(log))]
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(log) // the client may have gone
}

// tail returns the last n lines.
func tail(log []byte, n int) []byte {
	lines := bytes.SplitAfter(log, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return bytes.Join(lines[max(0, len(lines)-n):], nil)
}

func (s *Standin) logOf(namespace, pod, name string, previous bool) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.pod.Namespace != namespace || r.pod.Name != pod {
			continue
		}
		for _, c := range r.containers {
			if c.spec.Name != name {
				continue
			}
			if previous && !c.backingOff() {
				return c.previousLog, c.previousLog != nil
			}
			return c.log, c.log != nil
		}
	}
	return nil, false
}
