package scenario

import (
	"encoding/hex"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// limits lists programs that would wait for their last connection, request or task for longer than the grace period, and
// have a limit of five seconds for that, as the remedy of SlowShutdown says.
func limits() []bed.Scenario {
	const (
		nginx   = "sed 's/^events/worker_shutdown_timeout 5s; events/' /everyday/nginx.conf >/tmp/nginx.conf; exec nginx -c /tmp/nginx.conf"
		haproxy = "{ echo global; echo '    hard-stop-after 5s'; cat /everyday/haproxy.cfg; } >/tmp/haproxy.cfg; exec haproxy -W -db -f /tmp/haproxy.cfg"
		phpFPM  = "sed 's/^process_control_timeout.*/process_control_timeout = 5s/' /everyday/php-fpm.conf >/tmp/php-fpm.conf; exec php-fpm8.2 -y /tmp/php-fpm.conf"
		node    = `const server = require('http').createServer((request, response) => { response.writeHead(200); response.write('.'); });
process.on('SIGTERM', () => { server.close(() => process.exit(0)); setTimeout(() => server.closeAllConnections(), 5000); });
server.listen(8080);`
		gunicorn = "cd /everyday; exec gunicorn --bind=:8080 --workers=2 --timeout=100000 --graceful-timeout=5 app:app"
		celery   = "cd /everyday; exec python3 -m celery -A tasks worker --concurrency=1 --time-limit=20"
	)
	return []bed.Scenario{
		limited("nginx", "nginx has a worker_shutdown_timeout", bed.ServersQuit, 8080, bed.SlowRequest, 0, "sh", "-c", nginx),
		limited("haproxy", "HAProxy has a hard-stop-after", bed.ServersUserOne, 8080, bed.HalfRequest, 0, "sh", "-c", haproxy),
		limited("php-fpm", "PHP-FPM has a process_control_timeout", bed.ServersQuit, 9000, bed.FastCGIRequest, 0, "sh", "-c", phpFPM),
		limited("node", "a server of Node.js closes all connections after five seconds", bed.RuntimesImage, 8080, bed.SlowRequest, 0, "node", "-e", node),
		limited("gunicorn", "gunicorn has a --graceful-timeout", bed.RuntimesImage, 8080, bed.SlowRequest, 0, "sh", "-c", gunicorn),
		limited("postgres", "PostgreSQL is stopped by SIGINT", bed.ServersInt, 5432, bed.PostgreSQLSession, 0, bed.PostgreSQL...),
		taskLimited(pod(60, bed.RuntimesImage, "sh", "-c", celery)),
	}
}

// taskLimited has a worker end a task that does not end by itself.
func taskLimited(spec corev1.PodSpec) bed.Scenario {
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "C_FORCE_ROOT", Value: "1"}, {Name: "TASK", Value: "slow"}}
	return follows("limit-celery", "celery's tasks have a time limit, and one that does not end", spec,
		"until p=$(first) && [ -e /proc/$p/root/ready ]; do sleep 1; done\n", 0)
}

// asks sends a request and reads until the connection ends, whatever signals come; /ready says that the request is sent.
const asks = `import signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)
s = None
while s is None:
    try: s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    except OSError: time.sleep(0.5)
s.sendall(bytes.fromhex(sys.argv[2]))
open('/ready', 'w').close()
try:
    while s.recv(4096): pass
except OSError: pass`

// limited has a second container hold a connection until the program ends that.
func limited(name, story, image string, port int, request string, code int32, command ...string) bed.Scenario {
	spec := pod(60, image, command...)
	spec.Containers = append(spec.Containers, corev1.Container{
		Name: "client", Image: bed.RuntimesImage, Command: []string{"python3", "-c", asks, strconv.Itoa(port), hex.EncodeToString([]byte(request))},
	})
	s := follows("limit-"+name, story+" and a connection that does not end", spec,
		"until for t in $(tasks); do [ -e /proc/$t/root/ready ] && break; done; do sleep 1; done\nsleep 3\n", code)
	s.Ends["client"] = 0
	s.Needs = []bed.Need{bed.PodNetwork}
	return s
}
