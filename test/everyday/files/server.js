// A server that closes its listener when it is asked to stop, and ends when the last request is
// done: a request of /slow never is. With the argument no-handler it has no listener for SIGTERM.
const http = require('http');

const server = http.createServer((request, response) => {
  response.writeHead(200);
  if (request.url === '/slow') {
    response.write('.');
    return;
  }
  response.end('hello\n');
});
if (process.argv[2] !== 'no-handler') {
  process.on('SIGTERM', () => server.close(() => process.exit(0)));
}
server.listen(8080);
