package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// A connection sends one request, and waits for its reply.
type connection struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
}

func dial(address string) (connection, error) {
	conn, err := net.Dial("tcp", address)
	return connection{conn: conn, in: bufio.NewReaderSize(conn, 1<<16)}, err
}

// line sends the request, and returns the first line of its reply.
func (c *connection) line() ([]byte, error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return nil, err
	}
	return c.nextLine()
}

func (c *connection) nextLine() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

func (c *connection) expect(reply string) error {
	line, err := c.line()
	if err == nil && string(line) != reply {
		err = fmt.Errorf("the reply is %q and not %q", line, reply)
	}
	return err
}

// skip reads so many bytes, and the end of the line after them.
func (c *connection) skip(count int) error {
	_, err := c.in.Discard(count + 2)
	return err
}

type redis struct{ connection }

func newRedis(address string) (store, error) {
	conn, err := dial(address)
	return &redis{conn}, err
}

// command makes the request of these words.
func (r *redis) command(words ...[]byte) {
	out := append(r.request[:0], '*')
	out = strconv.AppendInt(out, int64(len(words)), 10)
	for _, word := range words {
		out = append(out, "\r\n$"...)
		out = strconv.AppendInt(out, int64(len(word)), 10)
		out = append(out, "\r\n"...)
		out = append(out, word...)
	}
	r.request = append(out, "\r\n"...)
}

func (r *redis) set(key, value []byte) error {
	r.command([]byte("SET"), key, value)
	return r.expect("+OK")
}

func (r *redis) get(key []byte, valueBytes int) error {
	r.command([]byte("GET"), key)
	if err := r.expect("$" + strconv.Itoa(valueBytes)); err != nil {
		return err
	}
	return r.skip(valueBytes)
}

func (r *redis) delete(key []byte) error {
	r.command([]byte("DEL"), key)
	return r.expect(":1")
}

// whole sends the request, and reads over its reply; it returns how many values that has.
func (r *redis) whole() (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	return r.rest(line)
}

func (r *redis) rest(line []byte) (int, error) {
	if len(line) == 0 {
		return 0, errors.New("an empty line")
	}
	if line[0] == '-' {
		return 0, errors.New(string(line))
	}
	if line[0] != '$' && line[0] != '*' {
		return 1, nil
	}
	count, err := strconv.Atoi(string(line[1:]))
	if err != nil || count < 0 {
		return 0, err
	}
	if line[0] == '$' {
		return 1, r.skip(count)
	}
	values := 0
	for range count {
		line, err := r.nextLine()
		if err != nil {
			return 0, err
		}
		more, err := r.rest(line)
		if err != nil {
			return 0, err
		}
		values += more
	}
	return values, nil
}

type memcached struct{ connection }

func newMemcached(address string) (store, error) {
	conn, err := dial(address)
	return &memcached{conn}, err
}

func (m *memcached) set(key, value []byte) error {
	m.request = append(append(append(m.request[:0], "set "...), key...), " 0 0 "...)
	m.request = append(strconv.AppendInt(m.request, int64(len(value)), 10), "\r\n"...)
	m.request = append(append(m.request, value...), "\r\n"...)
	return m.expect("STORED")
}

func (m *memcached) get(key []byte, valueBytes int) error {
	m.request = append(append(append(m.request[:0], "get "...), key...), "\r\n"...)
	line, err := m.line()
	if err != nil {
		return err
	}
	if !bytes.HasSuffix(line, []byte(" "+strconv.Itoa(valueBytes))) {
		return fmt.Errorf("the reply is %q", line)
	}
	if err := m.skip(valueBytes); err != nil {
		return err
	}
	if line, err = m.nextLine(); err == nil && string(line) != "END" {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (m *memcached) delete(key []byte) error {
	m.request = append(append(append(m.request[:0], "delete "...), key...), "\r\n"...)
	return m.expect("DELETED")
}
