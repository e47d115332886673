// Node behind the proxy: node server.js PORT LOG. Logs each request that came whole, and each that was refused.
const fs = require('fs'), http = require('http');
const log = fs.openSync(process.argv[3], 'a');
const tell = line => fs.writeSync(log, JSON.stringify(line) + '\n');
// The path as a router of Node's would take it: WHATWG's URL takes dot segments away.
const normal = target => {
  try { return decodeURIComponent(new URL(target.startsWith('/') ? 'http://a.test' + target : target).pathname); } catch { return ''; }
};
const seen = (request, length) => tell({
  path: normal(request.url), id: request.headers['x-request-id'] ?? '', method: request.method, target: request.url, host: request.headers.host ?? '',
  length, status: 200, view: request.headers['x-view'] ?? '',
});
const server = http.createServer((request, response) => {
  let length = 0;
  request.on('data', part => { length += part.length; });
  request.on('end', () => {
    if (!request.complete) return;
    seen(request, length);
    response.end(`saw:${request.headers['x-request-id'] ?? ''};`);
  });
});
server.on('connect', (request, socket) => { seen(request, 0); socket.end('HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n'); });
server.on('clientError', (error, socket) => {
  if (error.code !== 'ECONNRESET' && error.code !== 'HPE_INVALID_EOF_STATE') tell({ id: '', status: 400, target: error.code });
  if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
});
server.keepAliveTimeout = 60000;
server.listen(Number(process.argv[2]), '127.0.0.1');
