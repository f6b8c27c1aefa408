package fakeaws

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/spf13/pflag"
)

// RunCommand runs a command of the aws command line with an access key. It supports aws iam
// create-role, put-role-policy and tag-role, with the flags that the documentation uses.
func (s *Server) RunCommand(ctx context.Context, key AccessKey, line string) error {
	words, err := shellWords(line)
	if err == nil && (len(words) < 3 || words[0] != "aws" || words[1] != "iam") {
		err = errors.New("want a command of aws iam")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	flags := pflag.NewFlagSet(words[2], pflag.ContinueOnError)
	role := flags.String("role-name", "", "")
	trust := flags.String("assume-role-policy-document", "", "")
	name := flags.String("policy-name", "", "")
	document := flags.String("policy-document", "", "")
	first := flags.StringArray("tags", nil, "")
	if err := flags.Parse(words[3:]); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	var tags []types.Tag
	for _, word := range append(*first, flags.Args()...) {
		key, value, ok := strings.Cut(strings.TrimPrefix(word, "Key="), ",Value=")
		if !ok {
			return fmt.Errorf("%s: %q must be Key=key,Value=value", line, word)
		}
		tags = append(tags, types.Tag{Key: &key, Value: &value})
	}
	client := iam.New(iam.Options{
		Region: globalRegions["aws"], BaseEndpoint: aws.String(s.URL()),
		Credentials: credentials.NewStaticCredentialsProvider(key.ID, key.Secret, key.SessionToken),
	})
	switch words[2] {
	case "create-role":
		_, err = client.CreateRole(ctx, &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: trust, Tags: tags})
	case "put-role-policy":
		_, err = client.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: name, PolicyDocument: document})
	case "tag-role":
		_, err = client.TagRole(ctx, &iam.TagRoleInput{RoleName: role, Tags: tags})
	default:
		err = errors.New("the command is not supported")
	}
	if err != nil {
		return fmt.Errorf("aws iam %s: %w", words[2], err)
	}
	return nil
}

var (
	shellPiece = regexp.MustCompile(`'[^']*'|\\.|[\w=,./:@-]+`)
	shellWord  = regexp.MustCompile(`(?:` + shellPiece.String() + `)+`)
	shellLine  = regexp.MustCompile(`^` + shellWord.String() + `(?: ` + shellWord.String() + `)*$`)
)

// shellWords splits a line into words as a shell does. It supports only single quotes and
// backslashes, and returns an error for any other special character.
func shellWords(line string) ([]string, error) {
	if !shellLine.MatchString(line) {
		return nil, errors.New("unsupported special character or unterminated quote")
	}
	words := shellWord.FindAllString(line, -1)
	for i, word := range words {
		words[i] = shellPiece.ReplaceAllStringFunc(word, func(piece string) string {
			if escaped, ok := strings.CutPrefix(piece, `\`); ok {
				return escaped
			}
			return strings.Trim(piece, "'")
		})
	}
	return words, nil
}
