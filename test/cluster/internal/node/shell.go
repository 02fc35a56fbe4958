package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// Dial connects to the shell server of a node.
func Dial(ctx context.Context, d state.Dir, n state.Node) (*ssh.Client, error) {
	k, err := readKeys(d)
	if err != nil {
		return nil, err
	}
	// An emulated node that is busy may take long to answer, but not for ever.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	address := fmt.Sprintf("127.0.0.1:%d", n.SSHPort)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to the shell of %s: %w; see `status`", n.Name, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c, chans, reqs, err := ssh.NewClientConn(conn, address, clientConfig(k, "root"))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("log in to %s: %w; see `status`", n.Name, err)
	}
	return ssh.NewClient(c, chans, reqs), nil
}

// Shell connects to the shell of a node by way of the tunnel, which has a connection
// open, and directly when the tunnel is not there.
func Shell(ctx context.Context, d state.Dir, n state.Node) (*ssh.Client, error) {
	k, err := readKeys(d)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.ShellSocket())
	if err != nil {
		return Dial(ctx, d, n)
	}
	c, chans, reqs, err := ssh.NewClientConn(conn, n.Name, clientConfig(k, n.Name))
	if err != nil {
		conn.Close()
		return Dial(ctx, d, n)
	}
	return ssh.NewClient(c, chans, reqs), nil
}

func clientConfig(k keys, user string) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User:              user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(k.client)},
		HostKeyCallback:   ssh.FixedHostKey(k.host),
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
		// Cheap to compute without help of the processor.
		Config: ssh.Config{KeyExchanges: []string{ssh.KeyExchangeCurve25519}},
	}
}

// ShellServer is how the tunnel answers in a node's stead: with the node's key, and
// to this cluster's key alone.
func ShellServer(d state.Dir) (*ssh.ServerConfig, error) {
	k, err := readKeys(d)
	if err != nil {
		return nil, err
	}
	host, err := ssh.ParsePrivateKey(k.hostPEM)
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), k.client.PublicKey().Marshal()) {
				return nil, errors.New("not the key of this cluster")
			}
			return nil, nil
		},
	}
	config.AddHostKey(host)
	return config, nil
}

// CommandLine is what the node's shell gets. One word is a line for that shell, as
// with ssh; several words are a program and its arguments, as with kubectl exec.
func CommandLine(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// Run runs one line in the node's shell and returns its exit status. The error is
// for a command that could not be run or whose end is not known.
func Run(ctx context.Context, client *ssh.Client, line string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	session, err := client.NewSession()
	if err != nil {
		return 0, fmt.Errorf("open a session: %w", err)
	}
	defer session.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	session.Stdout, session.Stderr = stdout, stderr
	if stdin != nil {
		// Not session.Stdin: Wait would wait for the end of our input too.
		pipe, err := session.StdinPipe()
		if err != nil {
			return 0, err
		}
		go func() {
			_, _ = io.Copy(pipe, stdin)
			pipe.Close()
		}()
	}
	err = session.Run(line)
	var exit *ssh.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &exit) && exit.Signal() != "":
		return 128 + signalNumber(exit.Signal()), nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	case err != nil:
		return 0, fmt.Errorf("lost the command's end: %w", err)
	}
	return 0, nil
}

func signalNumber(name string) int {
	numbers := map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "FPE": 8, "KILL": 9, "SEGV": 11, "PIPE": 13, "ALRM": 14, "TERM": 15}
	return numbers[name]
}
