package tunnel

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// serveShell passes shell sessions on to a node over the connection that is open
// anyway: on an emulated processor a new one costs more than most commands do.
// The user name is the name of the node.
func (t *tunnel) serveShell(ctx context.Context, conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close()
	down, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for channel := range channels {
		l, ok := t.links[down.User()]
		if !ok {
			_ = channel.Reject(ssh.Prohibited, "no node of that name")
			continue
		}
		go func() {
			client, err := l.connected(ctx)
			if err == nil {
				err = passOn(client, channel)
			}
			if err != nil {
				slog.Warn("open a session", "node", down.User(), "error", err)
				_ = channel.Reject(ssh.ConnectionFailed, err.Error())
			}
		}()
	}
}

// passOn opens the same channel at the node and copies both ways until it is closed
// at one end.
func passOn(client *ssh.Client, channel ssh.NewChannel) error {
	up, upRequests, err := client.OpenChannel(channel.ChannelType(), channel.ExtraData())
	if err != nil {
		return err
	}
	down, downRequests, err := channel.Accept()
	if err != nil {
		up.Close()
		return nil
	}
	go func() {
		_, _ = io.Copy(up, down)
		_ = up.CloseWrite()
	}()
	var answering sync.Mutex
	go func() {
		for r := range downRequests {
			answering.Lock()
			passRequest(up, r)
			answering.Unlock()
		}
		up.Close()
	}()
	// The channel is closed behind the last output, the exit status, and the answer
	// to the request that began it: a fast node may have ended the command before
	// the answer is passed on.
	var output sync.WaitGroup
	output.Go(func() { _, _ = io.Copy(down, up) })
	output.Go(func() { _, _ = io.Copy(down.Stderr(), up.Stderr()) })
	for r := range upRequests {
		passRequest(down, r)
	}
	output.Wait()
	answering.Lock()
	down.Close()
	answering.Unlock()
	return nil
}

func passRequest(to ssh.Channel, r *ssh.Request) {
	ok, err := to.SendRequest(r.Type, r.WantReply, r.Payload)
	if r.WantReply {
		_ = r.Reply(ok && err == nil, nil)
	}
}
