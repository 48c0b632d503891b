// Prints "ok NAME" or "failed NAME: reason" for each case.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "franz-go-orders"

func check(name string, run func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Printf("failed %s: %v\n", name, err)
	} else {
		fmt.Printf("ok %s\n", name)
	}
}

func produce(ctx context.Context, seed string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.MaxBufferedRecords(10000))
	if err != nil {
		return err
	}
	defer client.Close()
	for n := 0; n < 1000; n++ {
		record := &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(fmt.Sprint(n))}
		client.Produce(ctx, record, func(_ *kgo.Record, failure error) {
			if failure != nil {
				err = failure
			}
		})
	}
	if flushed := client.Flush(ctx); flushed != nil {
		return flushed
	}
	return err
}

func read(ctx context.Context, count int, options ...kgo.Opt) ([]string, error) {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var values []string
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		if failures := fetches.Errors(); len(failures) > 0 {
			return values, failures[0].Err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return values, client.CommitUncommittedOffsets(ctx)
}

func main() {
	seed := os.Args[1]
	check("idempotent_producer", func(ctx context.Context) error { return produce(ctx, seed) })
	check("consumer_group", func(ctx context.Context) error {
		values, err := read(ctx, 1000, kgo.SeedBrokers(seed), kgo.ConsumerGroup("franz-go-readers"),
			kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		for n, value := range values {
			if value != fmt.Sprint(n) {
				return fmt.Errorf("record %d is %s", n, value)
			}
		}
		return nil
	})
	check("transactions", func(ctx context.Context) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.TransactionalID("franz-go-writer"),
			kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("franz-go-payments"))
		if err != nil {
			return err
		}
		defer client.Close()
		for n := 0; n < 6; n++ {
			if err := client.BeginTransaction(); err != nil {
				return err
			}
			if err := client.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(n))).FirstErr(); err != nil {
				return err
			}
			if err := client.EndTransaction(ctx, kgo.TransactionEndTry(n%2 == 0)); err != nil {
				return err
			}
		}
		values, err := read(ctx, 3, kgo.SeedBrokers(seed), kgo.ConsumerGroup("franz-go-auditors"),
			kgo.ConsumeTopics("franz-go-payments"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if err == nil && fmt.Sprint(values) != "[0 2 4]" {
			err = fmt.Errorf("read %v", values)
		}
		return err
	})
}
