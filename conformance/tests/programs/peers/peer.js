// A peer of Node.js's sockets, which libuv has.
//
// serve PORT COUNT: echoes so many streams, then ends. talk HOST PORT SIZE: sends so many bytes on each of two streams, and compares what returns.
"use strict";
const crypto = require("crypto");
const net = require("net");

function serve(port, count) {
  let ended = 0;
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.pipe(socket);
    socket.on("close", () => {
      ended += 1;
      if (ended === count) {
        server.close();
      }
    });
  });
  server.listen(port);
}

function exchange(host, port, bytes) {
  return new Promise((resolve, reject) => {
    const parts = [];
    const socket = net.connect({ host, port, allowHalfOpen: true }, () => socket.end(bytes));
    socket.on("data", (part) => parts.push(part));
    socket.on("end", () => resolve(Buffer.concat(parts).equals(bytes)));
    socket.on("error", reject);
  });
}

async function talk(host, port, size) {
  const bytes = crypto.randomBytes(size);
  const equal = await Promise.all([exchange(host, port, bytes), exchange(host, port, bytes)]);
  console.log(equal.every((is) => is) ? "equal" : "other bytes");
}

const [word, ...rest] = process.argv.slice(2);
if (word === "serve") {
  serve(Number(rest[0]), Number(rest[1]));
} else {
  talk(rest[0], Number(rest[1]), Number(rest[2]));
}
