// Reads, transforms and writes in transactions with franz-go, which uses those of version 2 (KIP-890).
//
//	copier ADDRESS SOURCE TARGET GROUP TRANSACTIONAL_ID ASSIGNOR [MESSAGES SESSION_TIMEOUT_MS]
//
// Every message of SOURCE is written to the same partition of TARGET, with "copy of " before it, in one transaction with
// the offset that says so. It goes on until SIGTERM, or until so many messages have been copied. An error that it can't
// go on after ends it with 3, the error's name as its last line: Kafka's, or UNREACHABLE for one of the network, after
// which nobody knows how the transaction ended until the next producer of this id has asked.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	batchMax           = 200
	requestRetries     = 200 // ten seconds, with the back-off below
	fatal              = 3
	transactionTimeout = 5 * time.Second
)

var balancers = map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer()}

func end(err error) {
	name := "UNREACHABLE"
	var known *kerr.Error
	if errors.As(err, &known) {
		name = known.Message
	}
	fmt.Fprintf(os.Stderr, "%v\n%s\n", err, name)
	os.Exit(fatal)
}

func number(place, otherwise int) int {
	if place < len(os.Args) {
		if given, err := strconv.Atoi(os.Args[place]); err == nil {
			return given
		}
	}
	return otherwise
}

func main() {
	address, source, target, group, id, assignor := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	wanted, sessionTimeoutMs := number(7, -1), number(8, 3000)
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.Balancers(balancers[assignor]),
		kgo.TransactionalID(id), kgo.TransactionTimeout(transactionTimeout), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.SessionTimeout(time.Duration(sessionTimeoutMs)*time.Millisecond), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.RequestRetries(requestRetries), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
	if err != nil {
		end(err)
	}
	for copied := 0; stop.Err() == nil && copied != wanted; {
		records := session.PollRecords(stop, batchMax).Records()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			end(err)
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		for _, record := range records {
			copied := &kgo.Record{Topic: target, Partition: record.Partition, Key: record.Key}
			copied.Value = append([]byte("copy of "), record.Value...)
			session.Produce(context.Background(), copied, failed.Promise())
		}
		if rand.Intn(3) == 0 { // now and then it takes its time, with everything written and nothing decided
			session.Client().Flush(stop)
			time.Sleep(time.Duration(rand.Intn(200)) * time.Millisecond)
		}
		committed, err := session.End(context.Background(), failed.Err() == nil)
		if err != nil {
			end(err)
		}
		if committed {
			copied += len(records)
		}
	}
	session.Close()
	fmt.Println("ok")
}
