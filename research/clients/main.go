// Command clients is the load of the papers' servers: puts, gets and deletes of distinct keys over the
// protocols of Redis and of memcached, and YCSB's workloads by go-ycsb.
//
//	clients -do redis     -addr 127.0.0.1:6379  -keys 20000 -value 1024 -threads 10
//	clients -do memcached -addr 127.0.0.1:11211 -keys 20000 -value 512 -key-bytes 16
//	clients -do ycsb      -addr 127.0.0.1:6379  -workload a -keys 10000 -operations 20000 -threads 30
//
// Each thread has a connection and one request under way. A line of the output is the name of a phase, its
// operations in a second, and how many there were. A reply that is not the expected one ends the program.
package main

import (
	"flag"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"time"
)

type options struct {
	address    string
	keys       int
	keyBytes   int
	valueBytes int
	threads    int
	limit      time.Duration
	workload   string
	operations int
	skipLoad   bool
	phases     string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("clients: ")
	var o options
	do := flag.String("do", "redis", "redis, memcached or ycsb")
	flag.StringVar(&o.address, "addr", "127.0.0.1:6379", "the server")
	flag.IntVar(&o.keys, "keys", 20000, "distinct keys")
	flag.IntVar(&o.keyBytes, "key-bytes", 25, "bytes of a key, 16 at least")
	flag.IntVar(&o.valueBytes, "value", 1024, "bytes of a value; of a field with ycsb")
	flag.IntVar(&o.threads, "threads", 10, "connections")
	flag.DurationVar(&o.limit, "limit", 20*time.Second, "the longest that a phase takes")
	flag.StringVar(&o.workload, "workload", "a", "a or d, with ycsb")
	flag.IntVar(&o.operations, "operations", 20000, "operations, with ycsb")
	flag.StringVar(&o.phases, "phases", "set,get,delete,set-and-delete", "not with ycsb; the first is set")
	flag.BoolVar(&o.skipLoad, "loaded", false, "the records are there already, with ycsb")
	flag.Parse()
	if o.keyBytes < 16 || o.threads < 1 || o.keys < o.threads {
		log.Fatal("a key has 16 bytes at least, and each thread a key")
	}
	switch *do {
	case "redis":
		phases(o, newRedis)
	case "memcached":
		phases(o, newMemcached)
	case "ycsb":
		runYCSB(o)
	default:
		log.Fatalf("unknown -do %q", *do)
	}
}

// A store is one connection, used by one thread.
type store interface {
	set(key, value []byte) error
	get(key []byte, valueBytes int) error
	delete(key []byte) error
}

// phases puts all keys, gets them, deletes them, and puts and deletes each by turns.
func phases(o options, connect func(string) (store, error)) {
	threads := make([]*thread, o.threads)
	for i := range threads {
		s, err := connect(o.address)
		if err != nil {
			log.Fatal(err)
		}
		threads[i] = &thread{store: s, first: i, step: o.threads, options: o, value: make([]byte, o.valueBytes)}
		for at := range threads[i].value {
			threads[i].value[at] = byte('a' + (at+i)%26)
		}
	}
	run := func(name string, body func(*thread) error) {
		if !slices.Contains(strings.Split(o.phases, ","), name) {
			return
		}
		var all sync.WaitGroup
		begun := time.Now()
		for _, t := range threads {
			all.Add(1)
			go func() {
				defer all.Done()
				t.until, t.count = begun.Add(o.limit), 0
				if err := body(t); err != nil {
					log.Fatalf("%s: %v", name, err)
				}
			}()
		}
		all.Wait()
		took, count := time.Since(begun), 0
		for _, t := range threads {
			count += t.count
		}
		fmt.Printf("%s %.0f %d\n", name, float64(count)/took.Seconds(), count)
	}
	run("set", func(t *thread) error {
		err := t.each(func(key []byte) error { return t.store.set(key, t.value) })
		t.there = t.count
		return err
	})
	run("get", func(t *thread) error {
		return t.each(func(key []byte) error { return t.store.get(key, o.valueBytes) })
	})
	run("delete", func(t *thread) error { return t.each(t.store.delete) })
	run("set-and-delete", func(t *thread) error {
		return t.each(func(key []byte) error {
			if err := t.store.set(key, t.value); err != nil {
				return err
			}
			t.count++
			return t.store.delete(key)
		})
	})
}

// A thread has the keys first, first+step, and so on.
type thread struct {
	store       store
	first, step int
	options     options
	value       []byte
	until       time.Time
	// Keys that it has put.
	there int
	// Operations of the phase.
	count int
}

func (t *thread) each(do func(key []byte) error) error {
	key := make([]byte, t.options.keyBytes)
	for at := range key {
		key[at] = 'k'
	}
	last := t.options.keys
	if t.there > 0 {
		last = t.first + t.there*t.step
	}
	for index := t.first; index < last; index += t.step {
		if index/t.step%64 == 63 && time.Now().After(t.until) {
			break
		}
		putKey(key, uint64(index))
		if err := do(key); err != nil {
			return err
		}
		t.count++
	}
	return nil
}

// putKey writes the key of an index: those of neighbours lie anywhere in the order of keys.
func putKey(key []byte, index uint64) {
	const digits = "0123456789abcdef"
	mixed := (index + 1) * 0x9e3779b97f4a7c15
	mixed ^= mixed >> 32
	for at := range 16 {
		key[at] = digits[mixed>>(4*at)&15]
	}
}
