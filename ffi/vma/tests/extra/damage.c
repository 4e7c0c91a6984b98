/* What valgrind is to find, on purpose: a read behind memory of one's own, or memory that nobody knows any more. */
#include "../abi/common.h"

int main(int argc, char **argv)
{
	struct sockaddr_in where;
	int fd = datagram(&where);
	char *bytes = malloc(8);

	memset(bytes, 0, 8);
	MUST(sendto(fd, bytes, 8, 0, SA(where), sizeof where));
	if (argc > 1 && strcmp(argv[1], "read") == 0) {
		volatile char *behind = bytes + 8;
		char byte = *behind;
		MUST(sendto(fd, &byte, 1, 0, SA(where), sizeof where));
		free(bytes);
	}
	bytes = NULL;
	return 0;
}
