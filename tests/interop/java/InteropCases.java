import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client against the broker: each case prints one line, "ok NAME" or "failed NAME: reason". */
public final class InteropCases {
    /** An hour ago: retention must not find it old. */
    private static final long STAMP_MS = System.currentTimeMillis() - 3_600_000;
    private static String bootstrap;

    interface Case {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        for (Map.Entry<String, Case> entry : cases().entrySet()) {
            try {
                entry.getValue().run();
                System.out.println("ok " + entry.getKey());
            } catch (Throwable failure) {
                StackTraceElement where = Arrays.stream(failure.getStackTrace())
                        .filter(frame -> frame.getClassName().startsWith("InteropCases"))
                        .findFirst().orElse(null);
                String reason = String.valueOf(failure).replace('\n', ' ');
                System.out.println("failed " + entry.getKey() + ": " + reason + " at " + where);
            }
        }
        System.exit(0);
    }

    private static Map<String, Case> cases() {
        Map<String, Case> cases = new LinkedHashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            cases.put("codec_" + codec, () -> codec(codec));
        }
        for (String acks : List.of("0", "1", "all")) {
            cases.put("acks_" + acks, () -> acks(acks));
        }
        cases.put("nulls_headers_timestamps", InteropCases::nullsHeadersTimestamps);
        cases.put("big_batches", InteropCases::bigBatches);
        cases.put("too_large", InteropCases::tooLarge);
        cases.put("positions", InteropCases::positions);
        cases.put("times_and_ends", InteropCases::timesAndEnds);
        cases.put("read_committed", InteropCases::readCommitted);
        cases.put("many_partitions", InteropCases::manyPartitions);
        cases.put("admin_topics", InteropCases::adminTopics);
        cases.put("admin_configs", InteropCases::adminConfigs);
        cases.put("admin_offsets_and_records", InteropCases::adminOffsetsAndRecords);
        cases.put("admin_group_positions", InteropCases::adminGroupPositions);
        cases.put("admin_cluster", InteropCases::adminCluster);
        cases.put("admin_log_dirs", InteropCases::adminLogDirs);
        cases.put("admin_producers", InteropCases::adminProducers);
        return cases;
    }

    private static void codec(String codec) throws Exception {
        String topic = newTopic(1, Map.of());
        Map<String, Object> config = Map.of("compression.type", codec, "linger.ms", 20, "enable.idempotence", true);
        try (KafkaProducer<byte[], byte[]> producer = producer(config)) {
            List<Future<RecordMetadata>> pending = new ArrayList<>();
            for (int n = 0; n < 500; n++) {
                pending.add(producer.send(new ProducerRecord<>(topic, bytes("k" + n), bytes(("value-" + n).repeat(10)))));
            }
            for (int n = 0; n < 500; n++) {
                same((long) n, pending.get(n).get().offset());
            }
        }
        List<ConsumerRecord<byte[], byte[]>> read = readFromStart(topic, 500, Map.of());
        for (int n = 0; n < 500; n++) {
            same((long) n, read.get(n).offset());
            same("k" + n, new String(read.get(n).key()));
            same(("value-" + n).repeat(10), new String(read.get(n).value()));
        }
    }

    private static void acks(String acks) throws Exception {
        String topic = newTopic(1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("acks", acks, "enable.idempotence", false))) {
            for (int n = 0; n < 50; n++) {
                producer.send(new ProducerRecord<>(topic, bytes("v" + n)));
            }
            producer.flush();
        }
        List<ConsumerRecord<byte[], byte[]>> read = readFromStart(topic, 50, Map.of());
        for (int n = 0; n < 50; n++) {
            same("v" + n, new String(read.get(n).value()));
        }
    }

    private static void nullsHeadersTimestamps() throws Exception {
        String topic = newTopic(1, Map.of());
        List<Header> headers = List.of(
                new RecordHeader("b", bytes("1")), new RecordHeader("a", (byte[]) null), new RecordHeader("b", bytes("")));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(topic, 0, STAMP_MS, null, bytes(""), headers)).get();
            producer.send(new ProducerRecord<>(topic, 0, STAMP_MS + 5, bytes("k"), null, List.of())).get();
        }
        List<ConsumerRecord<byte[], byte[]>> read = readFromStart(topic, 2, Map.of());
        same(null, read.get(0).key());
        same(0, read.get(0).value().length);
        same(STAMP_MS, read.get(0).timestamp());
        same(headers, Arrays.asList(read.get(0).headers().toArray()));
        same(null, read.get(1).value());
        same(STAMP_MS + 5, read.get(1).timestamp());
        check(read.get(0).leaderEpoch().isPresent(), "a record has no leader epoch");
    }

    private static void bigBatches() throws Exception {
        String topic = newTopic(1, Map.of("max.message.bytes", String.valueOf(8 << 20)));
        Map<String, Object> config = Map.of("batch.size", 4 << 20, "linger.ms", 100, "max.request.size", 8 << 20);
        try (KafkaProducer<byte[], byte[]> producer = producer(config)) {
            for (int n = 0; n < 10; n++) {
                byte[] value = new byte[900_000 + n];
                Arrays.fill(value, (byte) n);
                producer.send(new ProducerRecord<>(topic, value));
            }
            producer.send(new ProducerRecord<>(topic, new byte[6 << 20]));
            producer.flush();
        }
        List<ConsumerRecord<byte[], byte[]>> read = readFromStart(topic, 11, Map.of("max.partition.fetch.bytes", 1000));
        for (int n = 0; n < 10; n++) {
            same(900_000 + n, read.get(n).value().length);
            same((byte) n, read.get(n).value()[899_999]);
        }
        same(6 << 20, read.get(10).value().length);
    }

    private static void tooLarge() throws Exception {
        String topic = newTopic(1, Map.of("max.message.bytes", "20000"));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            fails(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, new byte[50_000])).get());
            same(0L, producer.send(new ProducerRecord<>(topic, bytes("small"))).get().offset());
        }
    }

    private static void positions() throws Exception {
        String topic = filled(20);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = "group-" + UUID.randomUUID();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", group))) {
            consumer.assign(List.of(partition));
            same(null, consumer.committed(Set.of(partition)).get(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(7, "seven")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", group))) {
            consumer.assign(List.of(partition));
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            same(7L, committed.offset());
            same("seven", committed.metadata());
            same(7L, read(consumer, 1).get(0).offset());
        }
    }

    private static void timesAndEnds() throws Exception {
        String topic = filled(50);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            same(0L, consumer.beginningOffsets(List.of(partition)).get(partition));
            same(50L, consumer.endOffsets(List.of(partition)).get(partition));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, STAMP_MS + 17_500)).get(partition);
            same(18L, found.offset());
            same(STAMP_MS + 18_000, found.timestamp());
            same(null, consumer.offsetsForTimes(Map.of(partition, STAMP_MS + 1_000_000_000L)).get(partition));
            consumer.assign(List.of(partition));
            consumer.seek(partition, 48);
            same("v48", new String(read(consumer, 1).get(0).value()));
            consumer.seekToEnd(List.of(partition));
            same(50L, consumer.position(partition));
            same(1, consumer.partitionsFor(topic).size());
        }
    }

    private static void readCommitted() throws Exception {
        String topic = filled(10);
        same(10, readFromStart(topic, 10, Map.of("isolation.level", "read_committed")).size());
    }

    private static void manyPartitions() throws Exception {
        String topic = newTopic(30, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", 20))) {
            for (int n = 0; n < 10; n++) {
                for (int p = 0; p < 30; p++) {
                    producer.send(new ProducerRecord<>(topic, p, null, bytes(p + "-" + n)));
                }
            }
            producer.flush();
        }
        List<TopicPartition> partitions = new ArrayList<>();
        for (int p = 0; p < 30; p++) {
            partitions.add(new TopicPartition(topic, p));
        }
        int[] next = new int[30];
        // Sessions: partitions join and leave the fetch while it goes on.
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("max.poll.records", 7))) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            consumer.pause(partitions.subList(0, 10));
            for (ConsumerRecord<byte[], byte[]> record : read(consumer, 200)) {
                same(record.partition() + "-" + next[record.partition()]++, new String(record.value()));
            }
            consumer.resume(partitions.subList(0, 10));
            for (ConsumerRecord<byte[], byte[]> record : read(consumer, 100)) {
                same(record.partition() + "-" + next[record.partition()]++, new String(record.value()));
            }
        }
    }

    private static void adminTopics() throws Exception {
        String topic = "java-" + UUID.randomUUID();
        try (Admin admin = admin()) {
            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "12345"));
            var created = admin.createTopics(List.of(wanted));
            Uuid id = created.topicId(topic).get();
            same(2, created.numPartitions(topic).get());
            same("12345", created.config(topic).get().get("retention.ms").value());
            fails(TopicExistsException.class, () -> admin.createTopics(List.of(wanted)).all().get());
            until("the topic", () -> names(admin).contains(topic));
            TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            same(id, described.topicId());
            same(2, described.partitions().size());
            same(1, described.partitions().get(0).isr().size());
            same(topic, admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name());
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            until("3 partitions", () -> partitions(admin, topic) == 3);
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            until("the topic's absence", () -> !names(admin).contains(topic));
        }
    }

    private static void adminConfigs() throws Exception {
        String topic = newTopic(1, Map.of("retention.ms", "12345"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            var config = admin.describeConfigs(List.of(resource), options).all().get().get(resource);
            ConfigEntry retention = config.get("retention.ms");
            same("12345", retention.value());
            same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, retention.source());
            same(ConfigEntry.ConfigType.LONG, retention.type());
            check(!retention.synonyms().isEmpty(), "retention.ms has no synonyms");
            check(!retention.documentation().isEmpty(), "retention.ms has no documentation");
            alter(admin, resource, "retention.ms", "", AlterConfigOp.OpType.DELETE);
            alter(admin, resource, "cleanup.policy", "compact", AlterConfigOp.OpType.SET);
            until("the new values", () -> "604800000".equals(value(admin, resource, "retention.ms"))
                    && "compact".equals(value(admin, resource, "cleanup.policy")));
            fails(InvalidConfigurationException.class,
                    () -> alter(admin, resource, "segment.bytes", "many", AlterConfigOp.OpType.SET));
            check(admin.listConfigResources().all().get().contains(resource), "the topic is not a config resource");
        }
    }

    private static void adminOffsetsAndRecords() throws Exception {
        String topic = newTopic(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (long stamp : new long[] {0, 9000, 1000}) {
                producer.send(new ProducerRecord<>(topic, 0, STAMP_MS + stamp, null, bytes("v"))).get();
            }
        }
        try (Admin admin = admin()) {
            same(0L, offset(admin, partition, OffsetSpec.earliest()).offset());
            same(3L, offset(admin, partition, OffsetSpec.latest()).offset());
            same(0L, offset(admin, partition, OffsetSpec.earliestLocal()).offset());
            same(-1L, offset(admin, partition, OffsetSpec.latestTiered()).offset());
            ListOffsetsResultInfo newest = offset(admin, partition, OffsetSpec.maxTimestamp());
            same(1L, newest.offset());
            same(STAMP_MS + 9000, newest.timestamp());
            same(1L, offset(admin, partition, OffsetSpec.forTimestamp(STAMP_MS + 500)).offset());
            var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(2)));
            same(2L, deleted.lowWatermarks().get(partition).get().lowWatermark());
            same(2L, offset(admin, partition, OffsetSpec.earliest()).offset());
        }
        same(2L, readFromStart(topic, 1, Map.of()).get(0).offset());
    }

    private static void adminGroupPositions() throws Exception {
        String topic = filled(5);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = "group-" + UUID.randomUUID();
        try (Admin admin = admin()) {
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(3))).all().get();
            var listed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            same(3L, listed.get(partition).offset());
        }
    }

    private static void adminCluster() throws Exception {
        try (Admin admin = admin()) {
            var cluster = admin.describeCluster();
            check(!cluster.clusterId().get().isEmpty(), "the cluster has no id");
            same(1, cluster.nodes().get().size());
            var node = cluster.nodes().get().iterator().next();
            same(bootstrap, node.host() + ":" + node.port());
            same(node.id(), cluster.controller().get().id());
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node.idString());
            same(node.idString(), value(admin, broker, "node.id"));
        }
    }

    private static void adminLogDirs() throws Exception {
        String topic = filled(5);
        try (Admin admin = admin()) {
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            var directories = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
            long size = directories.values().stream()
                    .filter(directory -> directory.replicaInfos().containsKey(new TopicPartition(topic, 0)))
                    .mapToLong(directory -> directory.replicaInfos().get(new TopicPartition(topic, 0)).size())
                    .sum();
            check(size > 100, "the partition's size is " + size);
            check(directories.values().stream().allMatch(d -> d.totalBytes().orElse(0) > 0), "no total of the disk");
        }
    }

    private static void adminProducers() throws Exception {
        String topic = newTopic(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("enable.idempotence", true));
                Admin admin = admin()) {
            for (int n = 0; n < 3; n++) {
                producer.send(new ProducerRecord<>(topic, bytes("v"))).get();
            }
            Collection<ProducerState> states =
                    admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            same(1, states.size());
            same(2, states.iterator().next().lastSequence());
        }
    }

    // What the cases are made of.

    private static byte[] bytes(String text) {
        return text.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    }

    private static Map<String, Object> with(Map<String, Object> defaults, Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(defaults);
        all.put("bootstrap.servers", bootstrap);
        all.putAll(config);
        return all;
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> config) {
        Map<String, Object> defaults = Map.of("delivery.timeout.ms", 30_000, "request.timeout.ms", 10_000);
        return new KafkaProducer<>(with(defaults, config), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        Map<String, Object> defaults = Map.of("enable.auto.commit", false, "auto.offset.reset", "none");
        return new KafkaConsumer<>(with(defaults, config), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Admin admin() {
        return Admin.create(with(Map.of("default.api.timeout.ms", 30_000, "request.timeout.ms", 15_000), Map.of()));
    }

    private static String newTopic(int partitions, Map<String, String> config) throws Exception {
        String topic = "java-" + UUID.randomUUID();
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(config))).all().get();
            until("the topic", () -> names(admin).contains(topic));
        }
        return topic;
    }

    private static String filled(int records) throws Exception {
        String topic = newTopic(1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int n = 0; n < records; n++) {
                producer.send(new ProducerRecord<>(topic, 0, STAMP_MS + 1000 * n, null, bytes("v" + n)));
            }
            producer.flush();
        }
        return topic;
    }

    private static List<ConsumerRecord<byte[], byte[]>> readFromStart(
            String topic, int count, Map<String, Object> config) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(config)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            return read(consumer, count);
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (records.size() < count) {
            check(System.nanoTime() < deadline, records.size() + " of " + count + " records in time");
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        }
        return records;
    }

    private static Set<String> names(Admin admin) {
        return await(admin.listTopics().names());
    }

    private static int partitions(Admin admin, String topic) {
        return await(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size();
    }

    private static String value(Admin admin, ConfigResource resource, String name) {
        return await(admin.describeConfigs(List.of(resource)).all()).get(resource).get(name).value();
    }

    private static ListOffsetsResultInfo offset(Admin admin, TopicPartition partition, OffsetSpec spec) {
        return await(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition));
    }

    private static void alter(
            Admin admin, ConfigResource resource, String name, String value, AlterConfigOp.OpType how) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), how);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    private static <T> T await(KafkaFuture<T> future) {
        try {
            return future.get();
        } catch (InterruptedException | ExecutionException failure) {
            throw new AssertionError(failure);
        }
    }

    private static void until(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "waited in vain for " + what);
            Thread.sleep(20);
        }
    }

    private static void fails(Class<? extends Exception> expected, Case attempt) throws Exception {
        try {
            attempt.run();
        } catch (ExecutionException failure) {
            check(expected.isInstance(failure.getCause()), "expected " + expected + ", got " + failure.getCause());
            return;
        }
        throw new AssertionError("expected " + expected + ", got nothing");
    }

    private static void same(Object expected, Object actual) {
        check(java.util.Objects.equals(expected, actual), "expected " + expected + ", got " + actual);
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private InteropCases() {}
}
