package evidence

import "time"

// A Request is a TCP connection of the kubelet to the pod over which nothing has come back:
// it is still being made, or no byte has been received.
type Request struct {
	// Port is the pod's, and Socket the inode of the kubelet's socket, by which two connections
	// differ.
	Port   int    `json:"port"`
	Socket uint64 `json:"socket"`
	// State is ESTABLISHED, or SYN_SENT while the connection is being made.
	State string `json:"state"`
	// Since is when the first of the readings in a row had ended that showed it.
	Since time.Time `json:"since,omitzero"`
}

// sinceRequests carries over since when the same connections have been there.
func sinceRequests(now, before []Request, t time.Time) {
	for i := range now {
		r := &now[i]
		r.Since = t
		for j := range before {
			if before[j].Port == r.Port && before[j].Socket == r.Socket {
				r.Since = before[j].Since
			}
		}
	}
}
