package scenario

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// disconnected lists the incidents in which the kubelet does not get through to the API server
// and the agent does, and innocent ones that look like them.
func disconnected() []bed.Scenario {
	all := []bed.Scenario{kubeletCutOff(), kubeletCutOffLater(), kubeletRefused(), certificateExpired(), kubeletCrashes(),
		kubeletCutOffBriefly(), kubeletCutOffAtTheEnd()}
	for i := range all {
		all[i].NoExec = true // the kubelet has the API server say who may
	}
	return all
}

// kubeconfig and kubeletConfig are the kubelet's, and keep and restore shell functions: the one
// keeps both as they are, the other puts them back and has the kubelet read them.
const (
	kubeconfig    = "/etc/kubernetes/kubelet.kubeconfig"
	kubeletConfig = "/etc/kubernetes/kubelet.yaml"
	configs       = `
kept=/run/scenario-kubelet
keep() { mkdir -p $kept; cp ` + kubeconfig + ` ` + kubeletConfig + ` $kept; }
restore() {
  [ -d $kept ] || return 0
  cp $kept/* /etc/kubernetes/
  rm -rf $kept /var/lib/kubelet/pki/kubelet-client-*
  restart
}
restart() { if p=$(pgrep -o -x kubelet); then kill $p; fi; }
`
	// forgetCredentials gives the kubelet some that the API server does not know.
	forgetCredentials = "sed -i 's/client-certificate-data: .*/token: expired/; /client-key-data:/d' " + kubeconfig
)

// link are shell functions: sever has the node's own programs neither send to the API server nor
// hear from it, while its pods do, and mend undoes that.
const link = `
rules() {
  server=$(sed -n 's,^ *server: https://,,p' ` + kubeconfig + `)
  iptables -w $1 OUTPUT -p tcp -d ${server%:*} --dport ${server#*:} -j DROP
  iptables -w $1 INPUT -p tcp -s ${server%:*} --sport ${server#*:} -j DROP
}
sever() { rules -I; }
isCut() { rules -C 2>/dev/null; }
mend() { if isCut; then rules -D; fi; }
`

// unheard and heard are steps that wait until the API server has noted that it hears nothing from
// the kubelet, and that it does.
var (
	unheard = readiness(corev1.ConditionUnknown)
	heard   = readiness(corev1.ConditionTrue)
)

// readiness is a step that waits until the condition Ready of the node has a status.
func readiness(status corev1.ConditionStatus) bed.Step {
	return func(ctx context.Context, n *bed.Node, _ *corev1.Pod) error {
		return n.Await(ctx, fmt.Sprintf("the condition Ready of %s to be %s", n.Name, status), func() (bool, string) {
			node, err := n.API.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return c.Status == status, fmt.Sprintf("%s: %s", c.Status, c.Reason)
				}
			}
			return false, "it has no such condition"
		})
	}
}

// sleeper is a pod whose program does not react to its stop signal. Nobody sends it one here.
func sleeper(grace int64) corev1.PodSpec { return pod(grace, bed.BusyboxImage, "sleep", "100000") }

func kubeletCutOff() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-cut-off",
		Story: "the kubelet's packets to the API server are lost",
		Fault: bed.Fault{
			Pod:   sleeper(40),
			Break: inTurn(bed.OnNode(link+"sever"), unheard),
			Proof: link + "isCut && pgrep -x kubelet && [ -n \"$(tasks)\" ]",
			Heal:  inTurn(bed.OnNode(link+"mend"), heard),
		},
		Want: bed.Want{
			Cause: "KubeletDisconnected",
			Says:  []string{"Cause: in phase Delivery", "Ready is Unknown since", "has not received the deletion", "journalctl -u kubelet"},
		},
	}
}

// kubeletCutOffLater has the kubelet stop the pod, and not get around to writing so.
func kubeletCutOffLater() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-cut-off-later",
		Story: "the kubelet's packets to the API server are lost while the pod ends",
		Fault: bed.Fault{
			Pod:   victim(25, "drain", "5"),
			Break: bed.OnNode(link + "(sleep 2; sever) </dev/null >/dev/null 2>&1 &"),
			Proof: link + "isCut && " + nothingLeft,
			Heal:  inTurn(bed.OnNode(link+"mend"), heard),
		},
		Want: bed.Want{
			Cause: "KubeletDisconnected",
			Says:  []string{"Ready is Unknown since", "cannot report that the pod has ended"},
		},
	}
}

func kubeletRefused() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-refused",
		Story: "the API server does not know the kubelet's credentials any more (401)",
		Fault: bed.Fault{
			Pod:   sleeper(40),
			Break: inTurn(bed.OnNode(configs+"keep\n"+forgetCredentials+"\nrestart"), unheard),
			Proof: "grep -q 'token: expired' " + kubeconfig + " && pgrep -x kubelet && [ -n \"$(tasks)\" ]",
			Heal:  inTurn(bed.OnNode(configs+"restore"), heard),
		},
		Want: bed.Want{
			Cause: "KubeletDisconnected",
			Says:  []string{"Cause: in phase Delivery", "Ready is Unknown since", "has not received the deletion", "Unauthorized"},
		},
	}
}

// certificateExpired has a kubelet that renews its certificates and finds that the one it has has
// expired: it goes on without, is refused as system:anonymous (403), and exits after five minutes
// (addCertRotation, pkg/kubelet/certificate/transport.go).
func certificateExpired() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-certificate-expired",
		Story: "the kubelet's client certificate has expired",
		Fault: bed.Fault{
			Pod: sleeper(40),
			Break: inTurn(func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
				certificate, key, err := expired("system:node:" + n.Name)
				if err != nil {
					return err
				}
				return bed.OnNode(fmt.Sprintf(configs+`keep
sed -i 's|client-certificate-data: .*|client-certificate-data: %s|; s|client-key-data: .*|client-key-data: %s|' `+kubeconfig+`
echo 'rotateCertificates: true' >>`+kubeletConfig+`
restart`, certificate, key))(ctx, n, p)
			}, unheard),
			Proof: "grep -q 'rotateCertificates: true' " + kubeletConfig + " && pgrep -x kubelet && [ -n \"$(tasks)\" ]",
			Heal:  inTurn(bed.OnNode(configs+"restore"), heard),
		},
		Want: bed.Want{
			Cause: "KubeletDisconnected",
			Says:  []string{"Cause: in phase Delivery", "has not received the deletion", "Fix: openssl x509 -noout -enddate"},
		},
	}
}

// kubeletCrashes has a kubelet that is ended eight seconds after each start, as one that cannot do
// without what it lacks. In between it could stop the pod if it got through to the API server.
func kubeletCrashes() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-crashes",
		Story: "the kubelet ends some seconds after each start, and its credentials are not valid",
		Place: bed.Place{Long: true},
		Fault: bed.Fault{
			Pod: victim(3, "drain", "0"),
			Break: bed.OnNode(configs + `keep
` + forgetCredentials + `
restart
(for i in $(seq 60); do sleep 8; [ -d $kept ] || exit 0; restart; done) </dev/null >/dev/null 2>&1 &
sleep 2`),
			Proof: "pgrep -x kubelet && [ -n \"$(tasks)\" ]",
			Heal:  inTurn(bed.OnNode(configs+"restore"), heard),
		},
		Want: bed.Want{
			Cause: "KubeletDown",
			Says:  []string{"the kubelet keeps exiting: ", "journalctl -u kubelet"},
		},
	}
}

// expired makes a certificate that has expired, and its key, as a kubeconfig holds them. Nobody
// looks at who has signed it.
func expired(user string) (certificate, private string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	is := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().Add(-time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", "", err
	}
	text := func(kind string, bytes []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return text("CERTIFICATE", der), text("EC PRIVATE KEY", secret), nil
}

// kubeletCutOffBriefly is innocent: the kubelet finds the API server again as soon as that has
// noted that it hears nothing.
func kubeletCutOffBriefly() bed.Scenario {
	return bed.Scenario{
		Name:  "kubelet-cut-off-briefly",
		Story: "innocent: the kubelet's packets to the API server are lost for a minute",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: inTurn(bed.OnNode(link+"sever"), unheard, bed.OnNode(link+"(sleep 15; mend) </dev/null >/dev/null 2>&1 &")),
			Proof: link + "isCut",
			Heal:  heard,
		},
	}
}

// kubeletCutOffAtTheEnd is innocent: the kubelet has stopped the pod, and writes so half a minute
// later.
func kubeletCutOffAtTheEnd() bed.Scenario {
	s := kubeletCutOffLater()
	s.Name, s.Cause, s.Says, s.Pod = "kubelet-cut-off-at-the-end", "", nil, victim(7, "drain", "5")
	s.Story = "innocent: the kubelet's packets to the API server are lost for half a minute while the pod ends"
	s.Break = bed.OnNode(link + "(sleep 2; sever; sleep 30; mend) </dev/null >/dev/null 2>&1 &")
	s.Heal = heard
	return s
}
