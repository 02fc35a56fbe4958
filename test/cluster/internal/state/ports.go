package state

import (
	"fmt"
	"net"
)

// Ports are on this machine's loopback.
type Ports struct {
	APIServer         int `json:"apiserver"`
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

// FreePorts returns n different ports of the loopback that nobody listens on. All are
// held until the last one is found, else the kernel may give the same one twice.
// Another program may take one before its user does; that user's log then says so.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port on the loopback: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
