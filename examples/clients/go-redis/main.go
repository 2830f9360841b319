// go-redis with its defaults: pipelines, transactions, messages and a queue. Takes the server's port.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func expect(what string, got, wanted any) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		log.Fatalf("%s: %v, and not %v", what, got, wanted)
	}
}

// buy lowers a number that others lower at the same time.
func buy(client *redis.Client) {
	lower := func(tx *redis.Tx) error {
		left, err := tx.Get(ctx, "stock").Int()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "stock", left-1, 0)
			return nil
		})
		return err
	}
	for {
		err := client.Watch(ctx, lower, "stock")
		if err == nil {
			return
		}
		if !errors.Is(err, redis.TxFailedErr) {
			log.Fatal(err)
		}
	}
}

func main() {
	port := "6379"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	client := redis.NewClient(&redis.Options{Addr: "localhost:" + port})
	defer client.Close()
	must(client.Del(ctx, "visits", "user:1", "board", "stock", "jobs").Result())

	// Keys of several types.
	must(client.Set(ctx, "visits", 41, time.Minute).Result())
	expect("INCR", must(client.Incr(ctx, "visits").Result()), 42)
	must(client.HSet(ctx, "user:1", "name", "Ada", "language", "en").Result())
	expect("HGETALL", must(client.HGetAll(ctx, "user:1").Result()), map[string]string{"name": "Ada", "language": "en"})
	must(client.ZAdd(ctx, "board", redis.Z{Score: 3, Member: "ada"}, redis.Z{Score: 5, Member: "bob"}).Result())
	expect("ZREVRANGE", must(client.ZRevRange(ctx, "board", 0, 0).Result()), []string{"bob"})

	// A pipeline: many commands, one round trip.
	replies := must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := 0; number < 1000; number++ {
			pipe.RPush(ctx, "jobs", number)
		}
		return nil
	}))
	expect("replies", len(replies), 1000)

	// A transaction that starts again if someone else changes what it has read.
	must(client.Set(ctx, "stock", 10, 0).Result())
	var buyers sync.WaitGroup
	for number := 0; number < 5; number++ {
		buyers.Add(1)
		go func() {
			defer buyers.Done()
			buy(client)
		}()
	}
	buyers.Wait()
	expect("stock", must(client.Get(ctx, "stock").Result()), 5)

	// Messages.
	subscriber := client.Subscribe(ctx, "news")
	must(subscriber.Receive(ctx))
	expect("receivers", must(client.Publish(ctx, "news", "hello").Result()), 1)
	expect("message", must(subscriber.ReceiveMessage(ctx)).Payload, "hello")
	subscriber.Close()

	// A queue: the worker waits until there is work.
	must(client.Del(ctx, "jobs").Result())
	done := make(chan string, 3)
	go func() {
		defer close(done)
		for {
			job := must(client.BLPop(ctx, 10*time.Second, "jobs").Result())[1]
			if job == "stop" {
				return
			}
			done <- job
		}
	}()
	for _, job := range []string{"a", "b", "c", "stop"} {
		must(client.RPush(ctx, "jobs", job).Result())
	}
	count := 0
	for job := range done {
		expect("job "+strconv.Itoa(count), job, string(rune('a'+count)))
		count++
	}
	expect("jobs", count, 3)
	fmt.Println("go-redis", redis.Version(), "is served")
}
