package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	_ "github.com/pingcap/go-ycsb/pkg/workload"
	"github.com/pingcap/go-ycsb/pkg/ycsb"
)

// runYCSB loads the records of one of YCSB's workloads, and runs it. A record is a hash of ten fields.
//
// go-ycsb's own binding greets a server with HELLO, at which twemproxy closes the connection.
func runYCSB(o options) {
	mixes := map[string][4]string{"a": {"0.5", "0.5", "0", "zipfian"}, "d": {"0.95", "0", "0.05", "latest"}}
	mix, known := mixes[o.workload]
	if !known {
		log.Fatalf("there is no workload %q here", o.workload)
	}
	p := properties.NewProperties()
	set := func(name, value string) {
		if _, _, err := p.Set(name, value); err != nil {
			log.Fatal(err)
		}
	}
	set(prop.ReadProportion, mix[0])
	set(prop.UpdateProportion, mix[1])
	set(prop.InsertProportion, mix[2])
	set(prop.RequestDistribution, mix[3])
	set(prop.ScanProportion, "0")
	set(prop.RecordCount, strconv.Itoa(o.keys))
	set(prop.OperationCount, strconv.Itoa(o.operations))
	set(prop.FieldLength, strconv.Itoa(o.valueBytes))
	set(prop.ThreadCount, strconv.Itoa(o.threads))
	set(prop.ReadAllFields, "true")
	set(prop.Silence, "true")
	set(prop.LogInterval, "1000000")
	measurement.InitMeasure(p)
	phase := func(name string, isRun bool, count int) {
		set(prop.DoTransactions, strconv.FormatBool(isRun))
		workload, err := ycsb.GetWorkloadCreator("core").Create(p)
		if err != nil {
			log.Fatal(err)
		}
		db := &binding{address: o.address}
		begun := time.Now()
		client.NewClient(p, workload, db).Run(context.Background())
		took := time.Since(begun)
		if failed := db.failed.Load(); failed != nil {
			log.Fatalf("%s: %v", name, *failed)
		}
		if done := int(db.done.Load()); done < count {
			log.Fatalf("%s: %d operations of %d were done", name, done, count)
		}
		fmt.Printf("%s %.0f %d\n", name, float64(count)/took.Seconds(), count)
	}
	if !o.skipLoad {
		phase("load", false, o.keys)
	}
	phase(o.workload, true, o.operations)
}

// A binding lets go-ycsb use our connections.
type binding struct {
	address string
	done    atomic.Int64
	failed  atomic.Pointer[error]
}

type connectionOf struct{}

func (b *binding) InitThread(ctx context.Context, _, _ int) context.Context {
	conn, err := dial(b.address)
	if err != nil {
		log.Fatal(err)
	}
	return context.WithValue(ctx, connectionOf{}, &redis{conn})
}

func (b *binding) CleanupThread(ctx context.Context) {
	ctx.Value(connectionOf{}).(*redis).conn.Close()
}

func (b *binding) Close() error { return nil }

// do sends a command; an error is kept, as go-ycsb goes on after one.
func (b *binding) do(ctx context.Context, expected int, words ...[]byte) error {
	r := ctx.Value(connectionOf{}).(*redis)
	r.command(words...)
	values, err := r.whole()
	if err == nil && values < expected {
		err = fmt.Errorf("%d values and not %d", values, expected)
	}
	if err != nil {
		b.failed.CompareAndSwap(nil, &err)
		return err
	}
	b.done.Add(1)
	return nil
}

func name(table, key string) []byte { return []byte(table + "/" + key) }

func (b *binding) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	words := [][]byte{[]byte("HMGET"), name(table, key)}
	for _, field := range fields {
		words = append(words, []byte(field))
	}
	if len(fields) == 0 {
		words[0] = []byte("HGETALL")
	}
	// With workload D, the newest record may be under way.
	return nil, b.do(ctx, 0, words...)
}

func (b *binding) write(ctx context.Context, table, key string, values map[string][]byte) error {
	words := [][]byte{[]byte("HMSET"), name(table, key)}
	for field, value := range values {
		words = append(words, []byte(field), value)
	}
	return b.do(ctx, 1, words...)
}

func (b *binding) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	return b.write(ctx, table, key, values)
}

func (b *binding) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	return b.write(ctx, table, key, values)
}

func (b *binding) Delete(ctx context.Context, table, key string) error {
	return b.do(ctx, 1, []byte("DEL"), name(table, key))
}

func (b *binding) Scan(context.Context, string, string, int, []string) ([]map[string][]byte, error) {
	return nil, errors.New("scans are of no workload here")
}
