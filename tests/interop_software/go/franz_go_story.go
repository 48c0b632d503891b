// Prints "ok NAME" or "failed NAME: reason" for each case. Arguments: the broker; for one that asks who its clients
// are also user, password, mechanism and the file of the certificate authority.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
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

// The options of every client: the broker and, if there are further arguments, how to log in over TLS.
func base() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(os.Args[1])}
	if len(os.Args) == 2 {
		return options, nil
	}
	user, password, mechanism := os.Args[2], os.Args[3], os.Args[4]
	authority, err := os.ReadFile(os.Args[5])
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(authority)
	auth := scram.Auth{User: user, Pass: password}
	exchange := auth.AsSha256Mechanism()
	if mechanism == "SCRAM-SHA-512" {
		exchange = auth.AsSha512Mechanism()
	}
	return append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}), kgo.SASL(exchange)), nil
}

func newClient(options ...kgo.Opt) (*kgo.Client, error) {
	common, err := base()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(common, options...)...)
}

func produce(ctx context.Context) error {
	client, err := newClient(kgo.AllowAutoTopicCreation(),
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
	client, err := newClient(options...)
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
	check("idempotent_producer", produce)
	check("consumer_group", func(ctx context.Context) error {
		values, err := read(ctx, 1000, kgo.ConsumerGroup("franz-go-readers"),
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
		client, err := newClient(kgo.TransactionalID("franz-go-writer"),
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
		values, err := read(ctx, 3, kgo.ConsumerGroup("franz-go-auditors"),
			kgo.ConsumeTopics("franz-go-payments"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if err == nil && fmt.Sprint(values) != "[0 2 4]" {
			err = fmt.Errorf("read %v", values)
		}
		return err
	})
}
