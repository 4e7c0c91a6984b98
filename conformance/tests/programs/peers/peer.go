// A peer of Go's sockets, which asks the kernel itself, whatever is preloaded.
//
// serve PORT COUNT: echoes so many streams, then ends. talk HOST PORT SIZE: sends so many bytes on each of two streams, and compares what returns.
package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func serve(port string, count int) {
	listener, err := net.Listen("tcp", ":"+port)
	must(err)
	ended := make(chan bool)
	for at := 0; at < count; at++ {
		connection, err := listener.Accept()
		must(err)
		go func() {
			_, err := io.Copy(connection, connection)
			must(err)
			must(connection.Close())
			ended <- true
		}()
	}
	for at := 0; at < count; at++ {
		<-ended
	}
}

func exchange(address string, sent []byte) bool {
	connection, err := net.Dial("tcp", address)
	must(err)
	go func() {
		_, err := connection.Write(sent)
		must(err)
		must(connection.(*net.TCPConn).CloseWrite())
	}()
	got, err := io.ReadAll(connection)
	must(err)
	must(connection.Close())
	return bytes.Equal(sent, got)
}

func talk(host string, port string, size int) {
	sent := make([]byte, size)
	_, err := rand.Read(sent)
	must(err)
	address := net.JoinHostPort(host, port)
	other := make(chan bool)
	go func() { other <- exchange(address, sent) }()
	if exchange(address, sent) && <-other {
		fmt.Println("equal")
	} else {
		fmt.Println("other bytes")
	}
}

func main() {
	if os.Args[1] == "serve" {
		serve(os.Args[2], number(os.Args[3]))
	} else {
		talk(os.Args[2], os.Args[3], number(os.Args[4]))
	}
}
