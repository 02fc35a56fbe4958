package bed

// PostgreSQL is the command of a server over the cluster that Debian's package makes, in the images of test/everyday.
var PostgreSQL = []string{
	"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "/usr/lib/postgresql/15/bin/postgres",
	"-D", "/var/lib/postgresql/15/main", "-c", "config_file=/etc/postgresql/15/main/postgresql.conf", "-c", "hba_file=/everyday/pg_hba.conf",
	"-c", "listen_addresses=*", "-c", "ssl=off", "-c", "unix_socket_directories=/tmp",
}

// What a client sends so that a server waits for it.
const (
	// SlowRequest asks an HTTP server of test/everyday for what does not end.
	SlowRequest = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
	// HalfRequest is the first line of a request and nothing more.
	HalfRequest = "GET / HTTP/1.1\r\n"
	// PostgreSQLSession is the message that begins a session.
	PostgreSQLSession = "\x00\x00\x00\x17\x00\x03\x00\x00user\x00postgres\x00\x00"
	// FastCGIRequest asks for /everyday/slow.php: begin, two parameters, the end of them, no input.
	FastCGIRequest = "\x01\x01\x00\x01\x00\x08\x00\x00" + "\x00\x01\x00\x00\x00\x00\x00\x00" +
		"\x01\x04\x00\x01\x00\x36\x00\x00" + "\x0f\x12SCRIPT_FILENAME/everyday/slow.php" + "\x0e\x03REQUEST_METHODGET" +
		"\x01\x04\x00\x01\x00\x00\x00\x00" + "\x01\x05\x00\x01\x00\x00\x00\x00"
)
