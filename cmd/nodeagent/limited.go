package main

import (
	"net"
	"sync"
)

// How many connections strangers on the pod network can have open at once, all of
// them and from one address: they cost memory, and one pod must not take the room
// from the kubelet's probes.
const (
	maxConnections = 256
	maxOfAddress   = 32
)

// A limited listener closes connections that are too many at once, instead of
// leaving them in the queue that everybody waits in.
type limited struct {
	net.Listener

	mu   sync.Mutex
	all  int
	from map[string]int
}

func newLimited(l net.Listener) *limited {
	return &limited{Listener: l, from: make(map[string]int)}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err == nil && l.enter(from) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		_ = c.Close() // it is not wanted
	}
}

func (l *limited) enter(from string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConnections || l.from[from] >= maxOfAddress {
		return false
	}
	l.all++
	l.from[from]++
	return true
}

func (l *limited) leave(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[from]--; l.from[from] == 0 {
		delete(l.from, from)
	}
}

// A counted connection gives its place back when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
