// Go's net/http behind the proxy: server PORT LOG. Logs each request that came whole, and each that was refused.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"sync"
)

var (
	lock sync.Mutex
	log  *os.File
)

func tell(line map[string]any) {
	lock.Lock()
	defer lock.Unlock()
	text, _ := json.Marshal(line)
	fmt.Fprintf(log, "%s\n", text)
}

type listener struct{ net.Listener }

type conn struct{ net.Conn }

func (l listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{accepted}, nil
}

// net/http answers a head that it refuses past the handler.
func (c conn) Write(data []byte) (int, error) {
	if bytes.HasPrefix(data, []byte("HTTP/1.1 4")) || bytes.HasPrefix(data, []byte("HTTP/1.1 5")) {
		tell(map[string]any{"id": "", "status": 400, "target": string(data[:12])})
	}
	return c.Conn.Write(data)
}

func serve(w http.ResponseWriter, r *http.Request) {
	length, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	id := r.Header.Get("X-Request-Id")
	tell(map[string]any{
		"id": id, "method": r.Method, "target": r.RequestURI, "path": path.Clean("/" + r.URL.Path), "host": r.Host,
		"length": length, "status": 200, "view": r.Header.Get("X-View"),
	})
	fmt.Fprintf(w, "saw:%s;", id)
}

func main() {
	log, _ = os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	bound, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener{bound}, http.HandlerFunc(serve)))
}
