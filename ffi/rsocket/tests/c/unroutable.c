/* Addresses that no way leads to, and what is said of them: `unroutable streams|both ADDRESS ERRNO...`. With streams alone it is for librdmacm's library, too. */
#include "check.h"

static socklen_t address_of(const char *text, struct sockaddr_storage *address)
{
	struct sockaddr_in *four = (struct sockaddr_in *)address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
	memset(address, 0, sizeof *address);
	if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
		address->ss_family = AF_INET;
		four->sin_port = htons(7);
		return sizeof *four;
	}
	CHECK(inet_pton(AF_INET6, text, &six->sin6_addr) == 1);
	address->ss_family = AF_INET6;
	six->sin6_port = htons(7);
	return sizeof *six;
}

int main(int argc, char **argv)
{
	CHECK(argc > 3);
	int has_datagrams = strcmp(argv[1], "both") == 0;
	for (int i = 2; i + 1 < argc; i += 2) {
		struct sockaddr_storage address;
		socklen_t len = address_of(argv[i], &address);
		int expected = atoi(argv[i + 1]);
		double began = seconds();
		fprintf(stderr, "%s\n", argv[i]);
		int fd = rsocket(address.ss_family, SOCK_STREAM, 0);
		CHECK(fd >= 0);
		FAILS(rconnect(fd, (struct sockaddr *)&address, len), expected);
		CHECK(rclose(fd) == 0);
		if (has_datagrams) {
			fd = rsocket(address.ss_family, SOCK_DGRAM, 0);
			CHECK(fd >= 0);
			FAILS(rsendto(fd, "x", 1, 0, (struct sockaddr *)&address, len), expected);
			CHECK(rclose(fd) == 0);
		}
		CHECK(seconds() - began < 30);
	}
	return 0;
}
