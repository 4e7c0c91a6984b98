/*
 * A plain libuv program: "serve PORT STREAMS [HOST]" echoes on as many connections and ends; "talk PORT STREAMS SIZE [HOST]" has that many
 * conversations at once, each of SIZE bytes, compares, and prints "equal".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define PIECE 10007

struct flow {
	uv_tcp_t tcp;
	uv_connect_t connect;
	uv_shutdown_t shutdown;
	unsigned number;
	size_t sent, received;
};

struct echo {
	uv_write_t request;
	char *data;
};

static size_t streams, size, opened, closed;
static uv_tcp_t listener;

static void check(int status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "%s: %s\n", what, uv_strerror(status));
		exit(1);
	}
}

static char at(unsigned number, size_t n)
{
	return (char)((n * 31) ^ (n >> 8) ^ number);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	(void)handle;
	*buf = uv_buf_init(malloc(suggested), (unsigned)suggested);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
	if (++closed == streams && !uv_is_closing((uv_handle_t *)&listener) && uv_is_active((uv_handle_t *)&listener))
		uv_close((uv_handle_t *)&listener, NULL);
}

static void on_echoed(uv_write_t *request, int status)
{
	check(status, "echo");
	free(((struct echo *)request)->data);
	free(request);
}

static void on_echo_shut(uv_shutdown_t *request, int status)
{
	check(status, "shutdown");
	uv_close((uv_handle_t *)request->handle, on_closed);
}

static void on_asked(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
	struct flow *flow = stream->data;

	if (len == UV_EOF) {
		free(buf->base);
		check(uv_shutdown(&flow->shutdown, stream, on_echo_shut), "shutdown");
		return;
	}
	check((int)len, "read");
	struct echo *echo = malloc(sizeof *echo);
	uv_buf_t out = uv_buf_init(buf->base, (unsigned)len);
	echo->data = buf->base;
	check(uv_write(&echo->request, stream, &out, 1, on_echoed), "write");
}

static void on_connection(uv_stream_t *server, int status)
{
	struct flow *flow = calloc(1, sizeof *flow);

	check(status, "connection");
	check(uv_tcp_init(server->loop, &flow->tcp), "tcp");
	flow->tcp.data = flow;
	check(uv_accept(server, (uv_stream_t *)&flow->tcp), "accept");
	check(uv_read_start((uv_stream_t *)&flow->tcp, on_alloc, on_asked), "read");
}

static void on_answer(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
	struct flow *flow = stream->data;

	if (len == UV_EOF) {
		if (flow->received != size) {
			fprintf(stderr, "%zu bytes of %zu came back\n", flow->received, size);
			exit(1);
		}
		uv_close((uv_handle_t *)stream, on_closed);
	} else {
		check((int)len, "read");
		for (ssize_t n = 0; n < len; n++, flow->received++)
			if (buf->base[n] != at(flow->number, flow->received)) {
				fprintf(stderr, "another byte at %zu\n", flow->received);
				exit(1);
			}
	}
	free(buf->base);
}

static void on_told(uv_shutdown_t *request, int status)
{
	(void)request;
	check(status, "shutdown");
}

static void send_next(struct flow *flow);

static void on_sent(uv_write_t *request, int status)
{
	struct flow *flow = request->handle->data;

	on_echoed(request, status);
	send_next(flow);
}

static void send_next(struct flow *flow)
{
	size_t len = size - flow->sent < PIECE ? size - flow->sent : PIECE;

	if (len == 0) {
		check(uv_shutdown(&flow->shutdown, (uv_stream_t *)&flow->tcp, on_told), "shutdown");
		return;
	}
	struct echo *piece = malloc(sizeof *piece);
	piece->data = malloc(len);
	for (size_t n = 0; n < len; n++)
		piece->data[n] = at(flow->number, flow->sent++);
	uv_buf_t out = uv_buf_init(piece->data, (unsigned)len);
	check(uv_write(&piece->request, (uv_stream_t *)&flow->tcp, &out, 1, on_sent), "write");
}

static void on_connected(uv_connect_t *request, int status)
{
	check(status, "connect");
	check(uv_read_start(request->handle, on_alloc, on_answer), "read");
	send_next(request->handle->data);
}

static int parse(const char *host, int port, struct sockaddr_storage *address)
{
	if (strchr(host, ':'))
		return uv_ip6_addr(host, port, (struct sockaddr_in6 *)address);
	return uv_ip4_addr(host, port, (struct sockaddr_in *)address);
}

int main(int argc, char **argv)
{
	uv_loop_t *loop = uv_default_loop();
	struct sockaddr_storage address;

	if (argc < 4)
		return 2;
	int serves = strcmp(argv[1], "serve") == 0;
	int host = serves ? 4 : 5;
	check(parse(argc > host ? argv[host] : "127.0.0.1", atoi(argv[2]), &address), "address");
	streams = strtoul(argv[3], NULL, 10);
	if (serves) {
		check(uv_tcp_init(loop, &listener), "tcp");
		check(uv_tcp_bind(&listener, (struct sockaddr *)&address, 0), "bind");
		check(uv_listen((uv_stream_t *)&listener, 128, on_connection), "listen");
	} else {
		if (argc < 5)
			return 2;
		size = strtoul(argv[4], NULL, 10);
		for (; opened < streams; opened++) {
			struct flow *flow = calloc(1, sizeof *flow);
			check(uv_tcp_init(loop, &flow->tcp), "tcp");
			flow->tcp.data = flow;
			flow->number = (unsigned)opened;
			check(uv_tcp_nodelay(&flow->tcp, opened % 2), "nodelay");
			check(uv_tcp_connect(&flow->connect, &flow->tcp, (struct sockaddr *)&address, on_connected), "connect");
		}
	}
	check(uv_run(loop, UV_RUN_DEFAULT), "run");
	if (closed != streams)
		return 1;
	if (strcmp(argv[1], "talk") == 0)
		puts("equal");
	return 0;
}
