/* What valgrind is to find, on purpose: a read behind memory of one's own, or memory that nobody knows any more. */
#include "../abi/common.h"

/* A block whose address happens to stay in a register, or on a stack that valgrind searches, counts as known: of many, one or two may. */
enum { LOST = 64 };

int main(int argc, char **argv)
{
	struct sockaddr_in where;
	int fd = datagram(&where);
	int reads = argc > 1 && strcmp(argv[1], "read") == 0;

	for (int i = 0; i < (reads ? 1 : LOST); i++) {
		char *bytes = calloc(8, 1);
		MUST(sendto(fd, bytes, 8, 0, SA(where), sizeof where));
		if (reads) {
			volatile char *behind = bytes + 8;
			char byte = *behind;
			MUST(sendto(fd, &byte, 1, 0, SA(where), sizeof where));
			free(bytes);
		}
	}
	return 0;
}
