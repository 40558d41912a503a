// franz-go against a broker: an idempotent producer with every codec, a cooperative group in which one member
// goes on where another left off, and the administration of topics, settings, offsets and groups.
//
//	franz ADDRESS PREFIX    prints a line for each thing that worked; ends with 1 at the first that did not
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 4
	perCodec   = 250
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func must(what string, err error) {
	if err != nil {
		fmt.Printf("FAILED %s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(what string, ok bool, got ...any) {
	if !ok {
		fmt.Println(append([]any{"FAILED", what, "got:"}, got...)...)
		os.Exit(1)
	}
	fmt.Println("ok", what)
}

func main() {
	address, topic := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	must("connect", err)
	admin := kadm.NewClient(client)
	defer admin.Close()

	created, err := admin.CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": kadm.StringPtr("3600000")}, topic)
	must("create the topic", err)
	expect("the topic has an id", created.ID != kadm.TopicID{}, created.ID)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, topic)
	expect("a topic can't be created twice", err == kerr.TopicAlreadyExists, err)

	produce(ctx, address, topic)
	ends, err := admin.ListEndOffsets(ctx, topic)
	must("list end offsets", err)
	var total int64
	ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
	expect("all records are in the log", total == int64(len(codecs)*perCodec), total)

	group := topic + "-group"
	consume(ctx, address, topic, group, int(total))
	lags, err := admin.Lag(ctx, group)
	must("describe lag", err)
	expect("the group has no lag", lags[group].Lag.Total() == 0, lags[group].Lag.Total())

	administer(ctx, admin, topic, group)
}

func produce(ctx context.Context, address, topic string) {
	for name, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec))
		must("connect", err)
		for n := range perCodec {
			producer.Produce(ctx, &kgo.Record{
				Key:     fmt.Appendf(nil, "key-%d", n%17),
				Value:   fmt.Appendf(nil, "%s-%d", name, n),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}},
			}, func(_ *kgo.Record, err error) { must("produce with "+name, err) })
		}
		must("flush", producer.Flush(ctx))
		producer.Close()
		fmt.Println("ok produced with", name)
	}
}

// The first member reads some, commits and leaves; the second must see what is left, and nothing twice.
func consume(ctx context.Context, address, topic, group string, total int) {
	seen := map[string]int{}
	member := func() *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(200*time.Millisecond),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		must("join", err)
		return client
	}
	read := func(client *kgo.Client, most int) {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		fetches := client.PollRecords(short, most)
		fetches.EachRecord(func(record *kgo.Record) {
			seen[string(record.Value)]++
			if len(record.Headers) != 1 || string(record.Headers[0].Key) != "codec" {
				must("read headers", fmt.Errorf("%v", record.Headers))
			}
		})
		must("commit", client.CommitUncommittedOffsets(ctx))
	}
	first := member()
	for len(seen) < 100 {
		read(first, 100)
	}
	first.LeaveGroup()
	first.Close()
	second := member()
	for len(seen) < total && ctx.Err() == nil {
		read(second, 1000)
	}
	second.Close()
	for value, times := range seen {
		if times != 1 {
			must("read each once", fmt.Errorf("%s: %d times", value, times))
		}
	}
	expect("every record was read once", len(seen) == total, len(seen))
}

func administer(ctx context.Context, admin *kadm.Client, topic, group string) {
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	must("describe configs", err)
	found := ""
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			found = config.MaybeValue()
		}
	}
	expect("the topic's setting is there", found == "3600000", found)

	more, err := admin.CreatePartitions(ctx, 2, topic)
	must("create partitions", err)
	must("create partitions", more.Error())
	details, err := admin.ListTopics(ctx, topic)
	must("list topics", err)
	expect("there are more partitions", len(details[topic].Partitions) == partitions+2, len(details[topic].Partitions))

	deleted, err := admin.DeleteRecords(ctx, kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 1}}})
	must("delete records", err)
	must("delete records", deleted.Error())
	starts, err := admin.ListStartOffsets(ctx, topic)
	must("list start offsets", err)
	start, _ := starts.Lookup(topic, 0)
	expect("the beginning has moved", start.Offset == 1, start.Offset)

	described, err := admin.DescribeGroups(ctx, group)
	must("describe the group", err)
	expect("the group is empty", described[group].State == "Empty", described[group].State)
	gone, err := admin.DeleteGroups(ctx, group)
	must("delete the group", err)
	must("delete the group", gone.Error())
	dropped, err := admin.DeleteTopics(ctx, topic)
	must("delete the topic", err)
	must("delete the topic", dropped.Error())
	fmt.Println("ok group and topic are deleted")
}
