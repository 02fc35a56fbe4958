package main

import (
	"net"
	"slices"
	"sync"
)

// How many connections strangers on the pod network can have open at once, all of
// them and from one address: they cost memory, and one pod must not take the room
// from the kubelet's probes.
const (
	maxConnections = 64
	maxOfAddress   = 16
)

// A limited listener closes connections that are too many at once, instead of
// leaving them in the queue that everybody waits in. It closes the oldest one of the
// address, of too many in all that of the address with most of them. A new one is let
// in, because it may be the kubelet's, of which others can have the address: pods in
// the node's network, and those that the node's address stands for.
type limited struct {
	net.Listener

	mu   sync.Mutex
	all  int
	from map[string][]*counted // in the order in which they came
}

func newLimited(l net.Listener) *limited {
	return &limited{Listener: l, from: make(map[string][]*counted)}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from, _, err := net.SplitHostPort(c.RemoteAddr().String()); err == nil {
			if c := l.enter(c, from); c != nil {
				return c, nil
			}
		}
		_ = c.Close() // it is not wanted
	}
}

// enter counts a connection in; nil when there are too many.
func (l *limited) enter(conn net.Conn, from string) *counted {
	if oldest := l.oldest(from); oldest != nil {
		_ = oldest.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConnections {
		return nil
	}
	c := &counted{Conn: conn}
	c.leave = sync.OnceFunc(func() { l.leave(from, c) })
	l.all++
	l.from[from] = append(l.from[from], c)
	return c
}

// oldest returns the connection that makes room for another one from its address; nil
// when there is room.
func (l *limited) oldest(from string) *counted {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.from[from]
	if len(of) >= maxOfAddress {
		return of[0]
	}
	if l.all < maxConnections {
		return nil
	}
	for _, o := range l.from {
		if len(o) > len(of) {
			of = o
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[0]
}

func (l *limited) leave(from string, c *counted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	of := slices.DeleteFunc(l.from[from], func(o *counted) bool { return o == c })
	if l.from[from] = of; len(of) == 0 {
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
