// gomemcache with its defaults: items, counters, compare and swap. Takes the port of `serve --memcached`.
package main

import (
	"fmt"
	"os"

	"github.com/bradfitz/gomemcache/memcache"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(is bool, what string) {
	if !is {
		panic(what)
	}
}

func main() {
	port := "11211"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	client := memcache.New("127.0.0.1:" + port)

	// Items, with flags and a deadline, several at once.
	must(client.Set(&memcache.Item{Key: "greeting", Value: []byte("hello"), Flags: 7, Expiration: 60}))
	item, err := client.Get("greeting")
	must(err)
	expect(string(item.Value) == "hello" && item.Flags == 7, "an item")
	expect(client.Add(&memcache.Item{Key: "greeting", Value: []byte("again")}) == memcache.ErrNotStored, "add")
	must(client.Replace(&memcache.Item{Key: "greeting", Value: []byte("hi")}))
	must(client.Append(&memcache.Item{Key: "greeting", Value: []byte(" there")}))
	must(client.Touch("greeting", 120))
	keys := make([]string, 100)
	for number := range keys {
		keys[number] = fmt.Sprintf("key%d", number)
		must(client.Set(&memcache.Item{Key: keys[number], Value: []byte(fmt.Sprint(number))}))
	}
	found, err := client.GetMulti(keys)
	must(err)
	expect(len(found) == 100 && string(found["key99"].Value) == "99", "several items")

	// A counter.
	must(client.Set(&memcache.Item{Key: "visits", Value: []byte("41")}))
	visits, err := client.Increment("visits", 1)
	must(err)
	expect(visits == 42, "a counter")

	// Compare and swap: only the first of two who have read the same.
	first, err := client.Get("greeting")
	must(err)
	second, err := client.Get("greeting")
	must(err)
	expect(string(first.Value) == "hi there", "an appended item")
	first.Value = []byte("first")
	must(client.CompareAndSwap(first))
	second.Value = []byte("second")
	expect(client.CompareAndSwap(second) == memcache.ErrCASConflict, "compare and swap")

	must(client.Delete("greeting"))
	_, err = client.Get("greeting")
	expect(err == memcache.ErrCacheMiss, "delete")
	fmt.Println("gomemcache is served")
}
